#include <ATen/functorch/BatchedTensorImpl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "gemloupe/ops/kernels/elementwise.h"
#include "gemloupe/ops/kernels/linear.h"
#include "gemloupe/ops/kernels/table.h"
#include "gemloupe/ops/rotary.h"
#include "ops/tensors.h"

using namespace gemloupe;
using namespace ops_tests;
namespace kernels = gemloupe::ops::kernels;
using kernels::Bfloat16;

namespace {

constexpr int64_t kLengths[] = {1, 2, 15, 31, 33, 63, 64, 65, 100, 1152};
constexpr at::ScalarType kDtypes[] = {at::kBFloat16, at::kFloat};

/// `test` with the loops for each set of instructions that this machine has.
template <class Test>
void on_each_table(Test test) {
  struct Restore {
    const kernels::Table& before = kernels::table();
    ~Restore() { kernels::use(before); }
  } restore;
  for (const kernels::Table* table : kernels::tables()) {
    INFO("instructions: ", table->name);
    kernels::use(*table);
    test();
  }
}

/// A copy whose last byte lies before a page that may not be touched: a masked load behind its end is an error, which
/// ASan does not see. A weight in a mapped file lies like this, too.
at::Tensor at_the_end(const at::Tensor& x) {
  const auto page = static_cast<size_t>(getpagesize()), bytes = static_cast<size_t>(x.nbytes());
  const size_t readable = (bytes + page - 1) / page * page, all = readable + page;
  void* map = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(map != MAP_FAILED);
  REQUIRE(mprotect(static_cast<char*>(map) + readable, page, PROT_NONE) == 0);
  char* start = static_cast<char*>(map) + readable - bytes;
  std::memcpy(start, x.contiguous().const_data_ptr(), bytes);
  return at::from_blob(
      start, x.sizes(), [map, all](void*) { munmap(map, all); }, x.options());
}

at::Tensor random_at_the_end(at::IntArrayRef sizes, at::ScalarType dtype, uint64_t seed = 1) {
  return at_the_end(random(sizes, dtype, seed));
}

at::Tensor every_bfloat16() {
  return at::arange(0, 1 << 16).to(at::kInt).to(at::kShort).view(at::kBFloat16);
}

/// Every bfloat16, as numbers of `dtype`: NaN, infinities and what is below the normal numbers among them.
at::Tensor every_number(at::ScalarType dtype) {
  return every_bfloat16().to(dtype);
}

/// As same_bits, with the signs of zeros; a NaN is as good as another.
bool same_everywhere(const at::Tensor& a, const at::Tensor& b) {
  auto bits = [](const at::Tensor& x) {
    return x.contiguous().masked_fill(x.isnan(), 0).view(x.scalar_type() == at::kFloat ? at::kInt : at::kShort);
  };
  return a.defined() && b.defined() && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         at::equal(a.isnan(), b.isnan()) && at::equal(bits(a), bits(b));
}

/// Half of the distance between the numbers of `dtype` that are next to 0.
double least(at::ScalarType dtype) {
  return std::ldexp(1, dtype == at::kBFloat16 ? -134 : -150);
}

/// Within one rounding of the same in float64, and `relative`, or `absolute`, of float32's own error.
void check_rounded_once(const at::Tensor& found, at::ScalarType dtype, const at::Tensor& expected, double relative,
                        double absolute) {
  REQUIRE(found.defined());
  CHECK((found.scalar_type() == dtype));
  CHECK(found.sizes() == expected.sizes());
  check_close(found, numbers(expected), half_ulp(dtype) + relative, absolute + least(dtype));
}

// ------------------------------------------------------------------------------------------------------------ products

template <class X, class W, class Out>
using ProductLoop = void (*)(const kernels::Product<X, W, Out>&, int64_t, int64_t);

/// x · weightᵀ by the loops themselves, the columns before `cut` apart from those after it; all at the ends of pages.
struct Products {
  at::ScalarType x_dtype, weight_dtype;

  at::Tensor operator()(const at::Tensor& x, const at::Tensor& weight, int64_t cut = 0) const {
    const kernels::LinearLoops& loops = kernels::table().linear;
    const at::Tensor out = at_the_end(at::full({x.size(0), weight.size(0)}, -77, x.options()));
    if (x_dtype == at::kBFloat16)
      run<Bfloat16, Bfloat16, Bfloat16>(loops.bf16, at_the_end(x), weight, out, cut);
    else if (weight_dtype == at::kBFloat16)
      run<float, Bfloat16, float>(loops.f32_bf16, split(x, loops), weight, out, cut);
    else
      run<float, float, float>(loops.f32, at_the_end(x), weight, out, cut);
    return out;
  }

  static at::Tensor split(const at::Tensor& x, const kernels::LinearLoops& loops) {
    const int64_t rows = x.size(0), in = x.size(1), padded = (in + loops.pairs - 1) / loops.pairs * loops.pairs;
    const at::Tensor from = at_the_end(x), out = at_the_end(at::full({rows, padded}, kNaN, x.options()));
    for (int64_t row = 0; row < rows; ++row)
      loops.split_pairs(from.const_data_ptr<float>() + row * in, in, out.mutable_data_ptr<float>() + row * padded);
    return out;
  }

  template <class X, class W, class Out>
  static void run(ProductLoop<X, W, Out> loop, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out,
                  int64_t cut) {
    const kernels::Product<X, W, Out> product{static_cast<const X*>(x.const_data_ptr()),
                                              static_cast<const W*>(weight.const_data_ptr()),
                                              static_cast<Out*>(out.mutable_data_ptr()),
                                              out.size(0),
                                              weight.size(1),
                                              weight.size(0)};
    loop(product, 0, cut);
    loop(product, cut, product.width);
  }
};

constexpr Products kProducts[] = {
    {at::kBFloat16, at::kBFloat16}, {at::kFloat, at::kBFloat16}, {at::kFloat, at::kFloat}};

at::Tensor product_in_float64(const at::Tensor& x, const at::Tensor& weight) {
  return at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t());
}

// --------------------------------------------------------------------------------------------------------------- norms

struct NormCase {
  at::ScalarType dtype, weight_dtype;
  Gain gain;

  at::Tensor operator()(const at::Tensor& x, const at::Tensor& weight, double eps = 1e-6) const {
    return kernels::rms_norm(x, gain == Gain::None ? at::Tensor() : weight, eps, gain);
  }
  at::Tensor added(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& residual) const {
    return kernels::norm_add(x, gain == Gain::None ? at::Tensor() : weight, 1e-6, gain, residual);
  }
  at::Tensor in_float64(const at::Tensor& x, const at::Tensor& weight, double eps = 1e-6) const {
    const at::Tensor wide = x.to(at::kDouble);
    const at::Tensor normed = wide * at::rsqrt(wide.pow(2).mean(-1, true) + eps);
    if (gain == Gain::OnePlusWeight) return normed * (1 + weight.to(at::kDouble));
    return gain == Gain::Weight ? normed * weight.to(at::kDouble) : normed;
  }
};

template <class Test>
void on_each_norm(Test test) {
  constexpr at::ScalarType kPairs[][2] = {
      {at::kBFloat16, at::kBFloat16}, {at::kFloat, at::kBFloat16}, {at::kFloat, at::kFloat}};
  for (const auto& [dtype, weight_dtype] : kPairs)
    for (Gain gain : {Gain::OnePlusWeight, Gain::Weight, Gain::None}) {
      INFO("x ", at::toString(dtype), ", weight ", at::toString(weight_dtype), ", gain ", static_cast<int>(gain));
      test(NormCase{dtype, weight_dtype, gain});
    }
}

// ---------------------------------------------------------------------------------------------------------- activation

at::Tensor gelu_in_float64(const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kDouble), u = 0.7978845608028654 * (wide + 0.044715 * wide.pow(3));
  // 1 + tanh u as 2 / (1 + e^-2u), which does not cancel; of -infinity it is NaN, as 0 · infinity is.
  return at::where(wide == -kInfinity, at::full_like(wide, kNaN), wide / (1 + at::exp(-2 * u)));
}

at::Tensor softcap_in_float64(const at::Tensor& x, double cap) {
  return at::tanh(x.to(at::kDouble) / cap) * cap;
}

}  // namespace

TEST_CASE("kernels: the best table is the one in use, and each can be forced") {
  const auto tables = kernels::tables();
  REQUIRE(!tables.empty());
  CHECK(std::string(tables.back()->name) == "portable");
  size_t seen = 0;
  on_each_table([&] { CHECK(&kernels::table() == tables[seen++]); });
  CHECK(seen == tables.size());
}

TEST_CASE(
    "linear loops: any shape as in float64; a row's bits depend neither on the other rows nor on where columns are "
    "cut") {
  constexpr int64_t kMost = 25;
  on_each_table([&] {
    for (const Products& multiply : kProducts)
      for (int64_t in : kLengths)
        for (int64_t width : {1, 2, 3, 4, 5, 6, 7, 8, 9, 33}) {
          INFO("in ", in, ", width ", width, ", x ", at::toString(multiply.x_dtype), ", weight ",
               at::toString(multiply.weight_dtype));
          const at::Tensor x = random({kMost, in}, multiply.x_dtype);
          const at::Tensor weight = random_at_the_end({width, in}, multiply.weight_dtype, 2);
          const at::Tensor all = multiply(x, weight);
          check_rounded_once(all, multiply.x_dtype, product_in_float64(x, weight), 1e-6, 4e-6 * std::sqrt(in));
          for (int64_t rows = 1; rows <= 17; ++rows) {
            const at::Tensor some = multiply(x.narrow(0, kMost - rows, rows), weight, rows * 5 % width);
            if (!same_bits(some, all.narrow(0, kMost - rows, rows))) FAIL_CHECK("other bits in ", rows, " rows");
          }
        }
  });
}

TEST_CASE("linear loops: NaN and infinity reach all of their row or column, and nothing else") {
  on_each_table([&] {
    for (const Products& multiply : kProducts)
      for (int64_t in : {1, 2, 31, 33, 65, 100})
        for (int64_t rows : {1, 2, 7})
          for (int64_t at : {int64_t{0}, in / 2, in - 1})
            for (double odd : {kNaN, kInfinity, -kInfinity}) {
              INFO("in ", in, ", rows ", rows, ", at ", at, ", ", odd);
              const at::Tensor weight = random_at_the_end({9, in}, multiply.weight_dtype, 2);
              const at::Tensor x = random({rows, in}, multiply.x_dtype), clean = multiply(x, weight);
              const int64_t row = rows - 1, column = 4;
              at::Tensor spoiled = x.clone();
              spoiled[row][at] = odd;
              at::Tensor expected = clean.clone();
              expected.narrow(0, row, 1).copy_(odd * weight.select(1, at));
              CHECK(same_everywhere(multiply(spoiled, weight), expected));
              const at::Tensor before = weight[column].clone();
              weight[column][at] = odd;
              expected = clean.clone();
              expected.narrow(1, column, 1).copy_(odd * x.narrow(1, at, 1));
              CHECK(same_everywhere(multiply(x, weight), expected));
            }
  });
}

TEST_CASE("linear loops: numbers below the normal ones, and products beyond float32") {
  on_each_table([&] {
    for (const Products& multiply : kProducts) {
      const at::Tensor ones = at::ones({5, 33}).to(multiply.weight_dtype);
      // AVX512-BF16's products take them for 0.
      const at::Tensor small = at::full({3, 33}, 1e-39).to(multiply.x_dtype);
      check_close(multiply(small, ones), numbers(product_in_float64(small, ones)), 1e-2, 33 * 1.2e-38);
      const at::Tensor large = at::full({3, 33}, 2e38).to(multiply.x_dtype);
      CHECK(multiply(large, ones).isinf().all().item<bool>());
      CHECK(multiply(large, -ones).eq(-kInfinity).all().item<bool>());
    }
  });
}

TEST_CASE("kernels::linear: views as copies, one thread as two") {
  on_each_table([&] {
    for (const Products& pair : kProducts) {
      const at::Tensor weight = random({5150, 200}, pair.weight_dtype, 2), x = random({4, 200}, pair.x_dtype);
      const at::Tensor all = kernels::linear(x, weight);
      check_rounded_once(all, pair.x_dtype, product_in_float64(x, weight), 1e-6, 1e-4);
      CHECK(same_bits(kernels::linear(x.t().contiguous().t(), weight), all));
      const at::Tensor shifted = at::cat({x.narrow(1, 0, 3), x}, 1).narrow(1, 3, 200);
      CHECK(same_bits(kernels::linear(shifted, weight), all));
      const at::Tensor anywhere =
          at::cat({weight.flatten().narrow(0, 0, 3), weight.flatten()}).narrow(0, 3, 5150 * 200);
      CHECK(same_bits(kernels::linear(x, anywhere.view({5150, 200})), all));
      at::set_num_threads(2);
      CHECK(same_bits(kernels::linear(x, weight), all));
      at::set_num_threads(1);
    }
  });
}

TEST_CASE("kernels::rms_norm: any length and gain as in float64, also of rows in another order") {
  on_each_table([&] {
    on_each_norm([&](const NormCase& norm) {
      for (int64_t width : kLengths) {
        INFO("width ", width);
        const at::Tensor x = random_at_the_end({2, 5, 3, width}, norm.dtype);
        const at::Tensor weight = random_at_the_end({width}, norm.weight_dtype, 2);
        const at::Tensor expected = norm.in_float64(x, weight), found = norm(x, weight);
        // 1 + weight may cancel.
        check_rounded_once(found, norm.dtype, expected, 3e-6, 1e-6);
        CHECK(same_bits(norm(x.transpose(1, 2), weight), found.transpose(1, 2)));
        CHECK(same_bits(norm(x[1][4].narrow(0, 1, 1), weight), found[1][4].narrow(0, 1, 1)));
        CHECK(same_bits(norm(x[1][4][2], weight), found[1][4][2]));
      }
    });
  });
}

TEST_CASE("kernels::rms_norm: NaN and infinity stay in their row; small numbers stay numbers") {
  on_each_table([&] {
    on_each_norm([&](const NormCase& norm) {
      const at::Tensor weight = random({33}, norm.weight_dtype, 2), clean = random({4, 33}, norm.dtype);
      for (double odd : {kNaN, kInfinity, -kInfinity})
        for (int64_t at : {0, 17, 32}) {
          at::Tensor x = clean.clone();
          x[2][at] = odd;
          at::Tensor expected = norm.in_float64(x, weight).to(norm.dtype);
          for (int64_t row : {0, 1, 3}) expected[row].copy_(norm(clean, weight)[row]);
          CHECK(at::equal(norm(x, weight).isnan(), expected.isnan()));
          CHECK(same_bits(norm(x, weight).nan_to_num(), expected.nan_to_num()));
        }
      for (double small : {1e-3, 1e-20, 1e-39, 3e-40}) {
        const at::Tensor x = at::full({1, 33}, small).to(norm.dtype);
        check_rounded_once(norm(x, weight), norm.dtype, norm.in_float64(x, weight), 1e-5, std::ldexp(1, -140));
        // As large as it was: below the normal numbers.
        const at::Tensor same = at::full({33}, 1).to(norm.weight_dtype);
        check_rounded_once(norm(x, same, 1), norm.dtype, norm.in_float64(x, same, 1), 1e-5, std::ldexp(1, -148));
      }
    });
  });
}

TEST_CASE("kernels::norm_add: the bits of a norm and an addition") {
  on_each_table([&] {
    on_each_norm([&](const NormCase& norm) {
      for (int64_t width : kLengths) {
        INFO("width ", width);
        const at::Tensor x = random_at_the_end({2, 3, width}, norm.dtype);
        const at::Tensor residual = random_at_the_end({2, 3, width}, norm.dtype, 3);
        const at::Tensor weight = random_at_the_end({width}, norm.weight_dtype, 2);
        const at::Tensor expected = residual + norm(x, weight);
        CHECK(same_everywhere(norm.added(x, weight, residual), expected));
        CHECK(
            same_everywhere(norm.added(x.transpose(0, 1), weight, residual.transpose(0, 1)), expected.transpose(0, 1)));
        const at::Tensor otherwise = residual.transpose(0, 1).contiguous().transpose(0, 1);
        CHECK(same_everywhere(norm.added(x, weight, otherwise), expected));
        CHECK(same_everywhere(norm.added(x, weight, residual[0].expand({2, 3, width})), residual[0] + norm(x, weight)));
      }
      const at::Tensor residual = every_number(norm.dtype).view({64, 1024}),
                       weight = random({1024}, norm.weight_dtype, 2);
      const at::Tensor x = random({64, 1024}, norm.dtype) * 1e-38;
      CHECK(same_everywhere(norm.added(x, weight, residual), residual + norm(x, weight)));
      CHECK(same_everywhere(norm.added(residual, weight, x), x + norm(residual, weight)));
    });
  });
}

TEST_CASE("kernels::gelu_tanh: every bfloat16, and float32 in fine steps, as in float64") {
  on_each_table([&] {
    for (at::ScalarType dtype : kDtypes) {
      const at::Tensor x = every_number(dtype).narrow(0, 1, (1 << 16) - 1);  // odd, and not aligned
      // What is below float32, or whose divisor is above it, is 0.
      check_rounded_once(kernels::gelu_tanh(x), dtype, gelu_in_float64(x), 2e-5, 1e-37);
    }
    const at::Tensor fine = at::linspace(-3, 3, 200001), coarse = at::linspace(-14, 14, 100001);
    check_rounded_once(kernels::gelu_tanh(fine), at::kFloat, gelu_in_float64(fine), 2e-6, 0);
    check_rounded_once(kernels::gelu_tanh(coarse), at::kFloat, gelu_in_float64(coarse), 2e-5, 1e-37);
  });
}

TEST_CASE("kernels::geglu: the bits of GELU and a product") {
  on_each_table([&] {
    for (at::ScalarType dtype : kDtypes) {
      for (int64_t width : kLengths) {
        const at::Tensor gate = random_at_the_end({3, width}, dtype), up = random_at_the_end({3, width}, dtype, 2);
        const at::Tensor expected = kernels::gelu_tanh(gate) * up;
        CHECK(same_everywhere(kernels::geglu(gate, up), expected));
        CHECK(same_everywhere(kernels::geglu(gate.t(), up.t()), expected.t()));
        CHECK(same_everywhere(kernels::geglu(gate, up.t().contiguous().t()), expected));
        CHECK(same_everywhere(kernels::geglu(gate[2], up[2]), expected[2]));
      }
      const at::Tensor every = every_number(dtype), other = every.index_select(0, at::randperm(1 << 16));
      CHECK(same_everywhere(kernels::geglu(every, other), kernels::gelu_tanh(every) * other));
      const at::Tensor tail = at::linspace(-12, -8, 4001).to(dtype);  // results around the least normal number
      CHECK(same_everywhere(kernels::geglu(tail, tail * 1e-3), kernels::gelu_tanh(tail) * (tail * 1e-3)));
    }
  });
}

TEST_CASE("kernels::softcap: every bfloat16, and float32 in fine steps, as in float64") {
  on_each_table([&] {
    for (double cap : {30.0, 50.0, 1.0}) {
      for (at::ScalarType dtype : kDtypes) {
        const at::Tensor x = every_number(dtype).narrow(0, 1, (1 << 16) - 1);
        check_rounded_once(kernels::softcap(x, cap), dtype, softcap_in_float64(x, cap), 1e-6, 4e-44);
        for (int64_t width : kLengths) {
          const at::Tensor odd = random_at_the_end({width}, dtype) * 20;
          check_rounded_once(kernels::softcap(odd, cap), dtype, softcap_in_float64(odd, cap), 1e-6, 0);
        }
      }
      const at::Tensor fine = at::linspace(-4 * cap, 4 * cap, 200001);
      check_rounded_once(kernels::softcap(fine, cap), at::kFloat, softcap_in_float64(fine, cap), 5e-7, 0);
    }
  });
}

TEST_CASE("kernels::rotate: the bits of ops::rotate, for either axis of heads and any strides") {
  on_each_table([&] {
    for (at::ScalarType dtype : kDtypes)
      for (int64_t dim : {2, 4, 30, 62, 64, 66, 130, 256})
        for (int64_t table_batch : {1, 2}) {
          INFO("dim ", dim, ", tables ", table_batch);
          const at::Tensor cos = random_at_the_end({table_batch, 5, dim}, dtype, 2);
          const at::Tensor sin = random_at_the_end({table_batch, 5, dim}, dtype, 3);
          const at::Tensor seq_first = random_at_the_end({2, 5, 3, dim}, dtype);
          const at::Tensor heads_first = seq_first.transpose(1, 2), wide = random({2, 3, 5, dim + 3}, dtype);
          for (const at::Tensor& x : {heads_first, heads_first.contiguous(), wide.narrow(3, 1, dim),
                                      wide.narrow(3, 1, dim).transpose(2, 3).contiguous().transpose(2, 3),
                                      seq_first.select(2, 1).unsqueeze(1).expand({2, 3, 5, dim})}) {
            const at::Tensor found = kernels::rotate(x, cos, sin, 1);
            CHECK(same_everywhere(found, ops::rotate(x, cos, sin, 1)));
            CHECK(found.is_contiguous());
            CHECK(same_everywhere(kernels::rotate(x.narrow(2, 3, 1), cos.narrow(1, 3, 1), sin.narrow(1, 3, 1), 1),
                                  found.narrow(2, 3, 1)));
          }
          CHECK(same_everywhere(kernels::rotate(seq_first, cos, sin, 2), ops::rotate(seq_first, cos, sin, 2)));
          const at::Tensor repeated = cos.narrow(0, 0, 1).expand({2, 5, dim});
          CHECK(same_everywhere(kernels::rotate(seq_first, repeated, repeated, 2),
                                ops::rotate(seq_first, repeated, repeated, 2)));
        }
  });
}

TEST_CASE("kernels::rotate: NaN, infinity and numbers below the normal ones as in ops::rotate") {
  on_each_table([&] {
    for (at::ScalarType dtype : kDtypes) {
      const at::Tensor x = every_number(dtype).view({1, 4, 128, 128});
      const at::Tensor cos = random({1, 128, 128}, dtype, 2), sin = random({1, 128, 128}, dtype, 3);
      CHECK(same_everywhere(kernels::rotate(x, cos, sin, 1), ops::rotate(x, cos, sin, 1)));
    }
  });
}

TEST_CASE("kernels: a view has the bits of a copy, and two threads those of one") {
  auto each = [](const at::Tensor& x, const at::Tensor& other) {
    return std::vector{kernels::rms_norm(x, at::Tensor(), 1e-6, Gain::None),
                       kernels::norm_add(x, at::Tensor(), 1e-6, Gain::None, other), kernels::gelu_tanh(x),
                       kernels::geglu(x, other), kernels::softcap(x, 30)};
  };
  auto check_same = [](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    for (size_t i = 0; i < a.size(); ++i) CHECK(same_everywhere(a[i], b[i]));
  };
  on_each_table([&] {
    for (at::ScalarType dtype : kDtypes) {
      const at::Tensor any = random({6, 40}, dtype), line = random({6, 1}, dtype), other = random({6, 20}, dtype, 2);
      for (const at::Tensor& view : {random({20, 6}, dtype).t(), any.slice(1, 0, 40, 2), line.expand({6, 20}),
                                     any.narrow(1, 3, 20), any.slice(0, 0, 6).narrow(1, 20, 20)})
        check_same(each(view, other), each(view.contiguous(), other));
      const at::Tensor x = random({61, 1153}, dtype), y = random({61, 1153}, dtype, 2);
      const auto alone = each(x, y);
      at::set_num_threads(2);
      check_same(each(x, y), alone);
      at::set_num_threads(1);
      const auto row = each(x.narrow(0, 60, 1), y.narrow(0, 60, 1));
      for (size_t i = 0; i < row.size(); ++i) CHECK(same_bits(row[i], alone[i].narrow(0, 60, 1)));
    }
  });
}

TEST_CASE("kernels: what they are not for is left to ATen") {
  const at::Tensor none, x = random({2, 8}), narrow = random({2, 8}, at::kBFloat16), half = random({2, 8}, at::kHalf);
  const at::Tensor batched = at::functorch::makeBatched(random({2, 2, 8}), 0, 1), empty = at::empty({0, 8});
  for (const at::Tensor& odd : {none, half, x.to(at::kDouble), x.to(at::kMeta), at::_neg_view(x), x.to_sparse(),
                                batched, empty, at::empty({2, 0}), at::ones({}), narrow}) {
    const std::string name = odd.defined() ? odd.toString() : "undefined";
    CAPTURE(name);
    if (!odd.is_same(narrow)) {  // which is odd beside x only
      CHECK(!kernels::rms_norm(odd, none, 1e-6, Gain::None).defined());
      CHECK(!kernels::gelu_tanh(odd).defined());
      CHECK(!kernels::softcap(odd, 30).defined());
      CHECK(!kernels::linear(odd, x).defined());
    }
    CHECK(!kernels::norm_add(odd, none, 1e-6, Gain::None, x).defined());
    CHECK(!kernels::norm_add(x, none, 1e-6, Gain::None, odd).defined());
    CHECK(!kernels::geglu(odd, x).defined());
    CHECK(!kernels::geglu(x, odd).defined());
    CHECK(!kernels::rms_norm(x, odd, 1e-6, Gain::Weight).defined());
  }
  CHECK(!kernels::rms_norm(narrow, random({8}), 1e-6, Gain::Weight).defined());
  CHECK(!kernels::rms_norm(x, random({7}), 1e-6, Gain::Weight).defined());
  CHECK(!kernels::rms_norm(x, random({16}).slice(0, 0, 16, 2), 1e-6, Gain::Weight).defined());
  CHECK(!kernels::norm_add(x, none, 1e-6, Gain::None, random({1, 8})).defined());
  CHECK(!kernels::geglu(x, random({2, 1})).defined());

  CHECK(!kernels::linear(random({2, 7}), x).defined());
  CHECK(!kernels::linear(random({2, 2, 8}), x).defined());
  CHECK(!kernels::linear(x, random({8, 3}).t()).defined());
  CHECK(!kernels::linear(narrow, x).defined());
  CHECK(!kernels::linear(x, batched).defined());
  CHECK(!kernels::linear(x, empty).defined());

  const at::Tensor queries = random({2, 3, 5, 8}), table = random({2, 5, 8});
  REQUIRE(kernels::rotate(queries, table, table).defined());
  CHECK(!kernels::rotate(queries, table, table, 2).defined());
  CHECK(!kernels::rotate(queries, table, table, 3).defined());
  CHECK(!kernels::rotate(queries, table.narrow(0, 0, 1), table).defined());
  CHECK(!kernels::rotate(queries, table.to(at::kBFloat16), table.to(at::kBFloat16)).defined());
  CHECK(!kernels::rotate(queries, table.narrow(2, 0, 6), table.narrow(2, 0, 6)).defined());
  CHECK(!kernels::rotate(queries.narrow(3, 0, 7), table.narrow(2, 0, 7), table.narrow(2, 0, 7)).defined());
  CHECK(!kernels::rotate(queries.narrow(2, 0, 0), table.narrow(1, 0, 0), table.narrow(1, 0, 0)).defined());
  CHECK(!kernels::rotate(queries[0], table, table).defined());
}
