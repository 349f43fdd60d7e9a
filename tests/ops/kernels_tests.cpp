#include "gemloupe/ops/basic.h"
#include "gemloupe/ops/kernels/bfloat16.h"
#include "gemloupe/ops/norm.h"
#include "ops/tensors.h"

using namespace gemloupe;
using namespace ops_tests;
namespace kernels = gemloupe::ops::kernels;

namespace {

at::Tensor bfloat(at::IntArrayRef sizes, uint64_t seed = 1) {
  return random(sizes, at::kBFloat16, seed);
}

/// Elsewhere the kernels leave everything to ATen, and there is nothing to test.
bool here() {
  return kernels::gelu_tanh(bfloat({1})).defined();
}

/// Within one rounding of the same in float64, and `sums` times float32's own error.
void check_rounded_once(const at::Tensor& found, const at::Tensor& expected, double sums = 1e-6) {
  REQUIRE(found.defined());
  CHECK((found.scalar_type() == at::kBFloat16));
  CHECK(found.sizes() == expected.sizes());
  check_close(found, numbers(expected), half_ulp(at::kBFloat16) + 1e-6, sums);
}

at::Tensor norm_in_float64(const at::Tensor& x, const at::Tensor& weight, double eps, Gain gain) {
  const at::Tensor wide = x.to(at::kDouble);
  at::Tensor normed = wide * at::rsqrt(wide.pow(2).mean(-1, true) + eps);
  if (gain == Gain::OnePlusWeight) return normed * (1 + weight.to(at::kDouble));
  return gain == Gain::Weight ? normed * weight.to(at::kDouble) : normed;
}

}  // namespace

TEST_CASE("kernels::linear: one to four rows, any length, any alignment") {
  if (!here()) return;
  for (int64_t rows : {1, 2, 3, 4})
    for (int64_t in : {1, 2, 31, 32, 33, 127, 128, 129, 160, 1152})
      for (int64_t out : {1, 3, 257}) {
        CAPTURE(rows);
        CAPTURE(in);
        CAPTURE(out);
        // A weight in a mapped file starts anywhere.
        const at::Tensor weight = bfloat({out * in + 3}, 2).narrow(0, 3, out * in).view({out, in});
        const at::Tensor x = bfloat({rows, in});
        check_rounded_once(kernels::linear(x, weight), at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t()), 1e-4);
      }
}

TEST_CASE("kernels::linear: a row's bits depend neither on the other rows nor on the threads") {
  if (!here()) return;
  const at::Tensor weight = bfloat({515, 200}, 2), x = bfloat({4, 200});
  const at::Tensor all = kernels::linear(x, weight);
  for (int64_t count : {1, 2, 3})
    for (int64_t first = 0; first + count <= 4; ++first)
      CHECK(same_bits(kernels::linear(x.narrow(0, first, count), weight), all.narrow(0, first, count)));
  at::set_num_threads(2);
  CHECK(same_bits(kernels::linear(x, weight), all));
  at::set_num_threads(1);
  CHECK(same_bits(kernels::linear(x.t().contiguous().t(), weight), all));
}

TEST_CASE("kernels::linear: NaN and infinity stay in their row, and reach all of it") {
  if (!here()) return;
  at::Tensor x = bfloat({2, 40});
  x[1][3] = kNaN;
  const at::Tensor weight = bfloat({5, 40}, 2), out = kernels::linear(x, weight);
  CHECK(same_bits(out[0], kernels::linear(x.narrow(0, 0, 1), weight)[0]));
  CHECK(out[1].isnan().all().item<bool>());
  x[1][3] = kInfinity;
  CHECK(kernels::linear(x, weight)[1].isinf().all().item<bool>());
}

TEST_CASE("kernels: what they are not for is left to ATen") {
  const at::Tensor x = bfloat({2, 8}), weight = bfloat({3, 8}, 2);
  CHECK(!kernels::linear(bfloat({5, 8}), weight).defined());
  CHECK(!kernels::linear(bfloat({0, 8}), weight).defined());
  CHECK(!kernels::linear(bfloat({2, 2, 8}), weight).defined());
  CHECK(!kernels::linear(bfloat({2, 7}), weight).defined());
  CHECK(!kernels::linear(x, bfloat({8, 3}).t()).defined());
  CHECK(!kernels::linear(x.to(at::kFloat), weight.to(at::kFloat)).defined());
  CHECK(!kernels::linear(x, weight.to(at::kFloat)).defined());
  CHECK(!kernels::rms_norm(x, random({8}), 1e-6, Gain::Weight).defined());
  CHECK(!kernels::rms_norm(x, bfloat({7}), 1e-6, Gain::Weight).defined());
  CHECK(!kernels::rms_norm(x.to(at::kHalf), at::Tensor(), 1e-6, Gain::None).defined());
  CHECK(!kernels::gelu_tanh(random({8})).defined());
  CHECK(!kernels::gelu_tanh(bfloat({0, 8})).defined());
}

TEST_CASE("kernels: a view has the bits of a copy") {
  if (!here()) return;
  for (const at::Tensor& view : {bfloat({20, 6}).t(), bfloat({6, 40}).slice(1, 0, 40, 2),
                                 bfloat({6, 1}).expand({6, 20}), bfloat({6, 30}).narrow(1, 3, 20)}) {
    const at::Tensor copy = view.contiguous();
    CHECK(same_bits(kernels::rms_norm(view, at::Tensor(), 1e-6, Gain::None),
                    kernels::rms_norm(copy, at::Tensor(), 1e-6, Gain::None)));
    CHECK(same_bits(kernels::gelu_tanh(view), kernels::gelu_tanh(copy)));
  }
}

TEST_CASE("kernels::rms_norm: any length and gain, also of rows in another order") {
  if (!here()) return;
  for (int64_t width : {1, 2, 15, 16, 17, 33, 256, 1152})
    for (Gain gain : {Gain::OnePlusWeight, Gain::Weight, Gain::None}) {
      CAPTURE(width);
      const at::Tensor x = bfloat({2, 5, 3, width}), weight = bfloat({width}, 2);
      const at::Tensor given = gain == Gain::None ? at::Tensor() : weight;
      const at::Tensor expected = norm_in_float64(x, weight, 1e-6, gain);
      check_rounded_once(kernels::rms_norm(x, given, 1e-6, gain), expected);
      const at::Tensor heads_first = kernels::rms_norm(x.transpose(1, 2), given, 1e-6, gain);
      check_rounded_once(heads_first, expected.transpose(1, 2));
    }
  const at::Tensor small = at::full({1, 4}, 1e-3, at::kBFloat16);
  check_rounded_once(kernels::rms_norm(small, at::Tensor(), 1e-6, Gain::None),
                     norm_in_float64(small, at::Tensor(), 1e-6, Gain::None));
}

TEST_CASE("kernels::gelu_tanh: every bfloat16") {
  if (!here()) return;
  const at::Tensor every = at::arange(0, 1 << 16).to(at::kInt).to(at::kShort).view(at::kBFloat16);
  const at::Tensor x = every.narrow(0, 1, every.numel() - 1);  // odd, and not aligned
  const at::Tensor found = kernels::gelu_tanh(x).to(at::kDouble), wide = x.to(at::kDouble);
  const at::Tensor u = 0.7978845608028654 * (wide + 0.044715 * wide.pow(3));
  // 1 + tanh u as 2 / (1 + e^-2u), which does not cancel.
  const at::Tensor expected = at::where(wide == -kInfinity, at::full_like(wide, kNaN), wide / (1 + at::exp(-2 * u)));
  // What is below float32, or whose divisor is above it, is 0.
  check_close(found, numbers(expected), half_ulp(at::kBFloat16) + 2e-5, 1e-37);
}
