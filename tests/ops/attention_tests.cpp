#include "gemloupe/ops/attention.h"
#include "gemloupe/ops/kernels/attention.h"
#include "gemloupe/ops/kernels/table.h"
#include "ops/tensors.h"

using namespace gemloupe;
using namespace ops_tests;

namespace {

struct Shape {
  int64_t batch, heads, kv_heads, queries, keys, dim;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{1, 1, 1, 1, 1, 2},   {1, 4, 1, 7, 7, 5},   {2, 4, 2, 5, 5, 16},
                                      {1, 3, 3, 33, 33, 8}, {2, 6, 2, 1, 20, 10}, {1, 8, 1, 1, 65, 32},
                                      {1, 2, 1, 3, 9, 6}};
  return all;
}

struct Inputs {
  at::Tensor queries, keys, values;
  double scale;

  Inputs(const Shape& s, at::ScalarType dtype = at::kFloat)
      : queries(random({s.batch, s.heads, s.queries, s.dim}, dtype, 1)),
        keys(random({s.batch, s.kv_heads, s.keys, s.dim}, dtype, 2)),
        values(random({s.batch, s.kv_heads, s.keys, s.dim}, dtype, 3)),
        scale(1 / std::sqrt(static_cast<double>(s.dim))) {}
};

ops::MaskExtent extent_of(const Shape& s) {
  return {s.queries, s.keys, s.keys};
}

at::Tensor no_padding(const Shape& s) {
  return at::ones({s.batch, s.keys}, at::kLong);
}

at::Tensor causal(const Shape& s) {
  return ops::additive_mask(ops::open_mask({}, extent_of(s), no_padding(s)), at::kFloat);
}

at::Tensor stepwise(const Inputs& in, const at::Tensor& additive) {
  return ops::mix_values(
      ops::attention_pattern(ops::attention_scores(in.queries, in.keys, additive, in.scale, std::nullopt)), in.values);
}

/// Attention in doubles, one number after the other: scores, pattern and mixed values.
struct Oracle {
  std::vector<double> scores, pattern, mixed;

  Oracle(const Shape& s, const Inputs& in, const at::Tensor& additive, std::optional<double> softcap) {
    const at::Tensor mask = additive.to(at::kDouble).expand({s.batch, s.heads, s.queries, s.keys}).contiguous();
    const std::vector<double> q = numbers(in.queries), k = numbers(in.keys), v = numbers(in.values), m = numbers(mask);
    auto at = [](int64_t i) { return static_cast<size_t>(i); };
    mixed.resize(at(s.batch * s.queries * s.heads * s.dim));
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.heads; ++h)
        for (int64_t i = 0; i < s.queries; ++i) {
          const int64_t group = b * s.kv_heads + h / (s.heads / s.kv_heads);
          std::vector<double> row;
          double largest = -kInfinity, sum = 0;
          for (int64_t j = 0; j < s.keys; ++j) {
            double score = 0;
            for (int64_t d = 0; d < s.dim; ++d)
              score += q[at(((b * s.heads + h) * s.queries + i) * s.dim + d)] * k[at((group * s.keys + j) * s.dim + d)];
            score *= in.scale;
            if (softcap) score = *softcap * std::tanh(score / *softcap);
            row.push_back(score + m[at(((b * s.heads + h) * s.queries + i) * s.keys + j)]);
            largest = std::max(largest, row.back());
          }
          scores.insert(scores.end(), row.begin(), row.end());
          for (double& score : row) sum += score = std::exp(score - largest);
          for (int64_t j = 0; j < s.keys; ++j) {
            pattern.push_back(row[at(j)] / sum);
            for (int64_t d = 0; d < s.dim; ++d)
              mixed[at(((b * s.queries + i) * s.heads + h) * s.dim + d)] +=
                  row[at(j)] / sum * v[at((group * s.keys + j) * s.dim + d)];
          }
        }
  }
};

/// The rule read aloud.
bool is_open(const MaskRule& rule, int64_t query, int64_t key, bool attended) {
  if (!attended) return false;
  if (!rule.bidirectional && key > query) return false;
  if (!rule.window) return true;
  return query - key < *rule.window && key - query < *rule.window;
}

std::vector<MaskRule> rules() {
  std::vector<MaskRule> all;
  for (bool bidirectional : {false, true})
    for (std::optional<int64_t> window : std::vector<std::optional<int64_t>>{std::nullopt, 1, 2, 5, 100})
      all.push_back({window, bidirectional});
  return all;
}

/// Passes of a run: without a cache, with one that keeps everything, with one that keeps what the window needs.
std::vector<ops::MaskExtent> extents(const MaskRule& rule) {
  std::vector<ops::MaskExtent> all;
  for (int64_t queries : {1, 2, 6})
    for (int64_t before : {0, 1, 4, 9}) {
      const int64_t kept = rule.window ? std::min(before, *rule.window - 1) : before;
      all.push_back({queries, kept + queries, before + queries});
    }
  return all;
}

at::Tensor padding(int64_t seen, int kind) {
  at::Tensor mask = at::ones({2, seen}, at::kLong);
  if (kind == 1) mask[1].slice(0, 0, seen / 2).fill_(0);  // on the left
  if (kind == 2) mask[0].slice(0, seen / 2).fill_(0);     // on the right
  if (kind == 3) mask[1].slice(0, 0, seen, 2).fill_(0);   // holes
  return mask;
}

}  // namespace

TEST_CASE("masks: every rule, extent and padding, as the rule reads") {
  for (const MaskRule& rule : rules())
    for (const ops::MaskExtent& extent : extents(rule))
      for (int kind = 0; kind < 4; ++kind) {
        const at::Tensor attended = padding(extent.seen, kind), open = ops::open_mask(rule, extent, attended);
        REQUIRE((open.scalar_type() == at::kBool));
        REQUIRE(open.sizes() == at::IntArrayRef({2, 1, extent.queries, extent.keys}));
        const std::vector<double> tokens = numbers(attended);
        std::vector<double> expected;
        for (int64_t b = 0; b < 2; ++b)
          for (int64_t query = extent.seen - extent.queries; query < extent.seen; ++query)
            for (int64_t key = extent.seen - extent.keys; key < extent.seen; ++key)
              expected.push_back(is_open(rule, query, key, tokens[static_cast<size_t>(b * extent.seen + key)] != 0));
        if (numbers(open) != expected)
          FAIL_CHECK("window ", rule.window.value_or(0), ", bidirectional ", rule.bidirectional, ", queries ",
                     extent.queries, ", keys ", extent.keys, ", seen ", extent.seen, ", padding ", kind);
      }
}

TEST_CASE("masks: plain causality is found where it is, and nowhere else") {
  int plain = 0, other = 0;
  for (const MaskRule& rule : rules())
    for (const ops::MaskExtent& extent : extents(rule))
      for (int kind = 0; kind < 4; ++kind) {
        const at::Tensor attended = padding(extent.seen, kind);
        const at::Tensor all = at::ones_like(attended);
        const bool causal_mask =
            at::equal(ops::open_mask(rule, extent, attended), ops::open_mask({}, extent, all)) &&
            (extent.queries == 1 || extent.queries == extent.keys);  // a fused kernel counts from the first key
        const bool found = ops::is_plain_causal(rule, extent, attended);
        if (rule.bidirectional)
          CHECK(!found);
        else
          CHECK(found == causal_mask);
        ++(found ? plain : other);
      }
  CHECK(plain > 30);
  CHECK(other > 50);
}

TEST_CASE("masks: added to scores, closed is the lowest finite number") {
  const at::Tensor open = at::tensor({1, 0, 0}).to(at::kBool).view({1, 1, 1, 3});
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const at::Tensor mask = ops::additive_mask(open, dtype);
    CHECK((mask.scalar_type() == dtype));
    CHECK(mask.flatten()[0].item<double>() == 0);
    const double lowest = mask.flatten()[1].item<double>();
    CHECK(std::isfinite(lowest));
    CHECK(mask.flatten()[2].item<double>() == lowest);
    CHECK(std::isinf((mask * 2).flatten()[1].item<double>()));
  }
}

TEST_CASE("attention: scores, pattern and mixed values against doubles") {
  for (const Shape& s : shapes())
    for (std::optional<double> softcap : std::vector<std::optional<double>>{std::nullopt, 2.0}) {
      CAPTURE(s.queries);
      CAPTURE(s.keys);
      const Inputs in(s);
      const at::Tensor mask = causal(s);
      const Oracle oracle(s, in, mask, softcap);
      const at::Tensor scores = ops::attention_scores(in.queries, in.keys, mask, in.scale, softcap);
      CHECK(scores.sizes() == at::IntArrayRef({s.batch, s.heads, s.queries, s.keys}));
      check_close(scores, oracle.scores, 1e-6, 1e-5);
      const at::Tensor pattern = ops::attention_pattern(scores);
      check_close(pattern, oracle.pattern, 1e-5, 1e-6);
      const at::Tensor mixed = ops::mix_values(pattern, in.values);
      CHECK(mixed.sizes() == at::IntArrayRef({s.batch, s.queries, s.heads, s.dim}));
      CHECK(mixed.is_contiguous());
      check_close(mixed, oracle.mixed, 1e-5, 1e-5);
    }
}

TEST_CASE("attention: bfloat16 rounds scores, takes the softmax in float32") {
  const Shape s{1, 4, 2, 6, 6, 8};
  const Inputs in(s, at::kBFloat16);
  const at::Tensor mask = causal(s).to(at::kBFloat16);
  const at::Tensor scores = ops::attention_scores(in.queries, in.keys, mask, in.scale, std::nullopt);
  const at::Tensor pattern = ops::attention_pattern(scores);
  CHECK((scores.scalar_type() == at::kBFloat16));
  CHECK(same_bits(pattern, at::softmax(scores.to(at::kFloat), -1).to(at::kBFloat16)));
  check_close(ops::mix_values(pattern, in.values), Oracle(s, in, causal(s), std::nullopt).mixed, 0.02, 0.04);
}

TEST_CASE("attention: a query that may go nowhere attends uniformly, the others as if it were not there") {
  const Shape s{1, 2, 1, 5, 5, 4};
  const Inputs in(s);
  const at::Tensor attended = integers({0, 0, 1, 1, 1}).unsqueeze(0);
  const at::Tensor mask = ops::additive_mask(ops::open_mask({}, extent_of(s), attended), at::kFloat);
  const at::Tensor pattern =
      ops::attention_pattern(ops::attention_scores(in.queries, in.keys, mask, in.scale, std::nullopt));
  check_close(pattern[0][1][0], std::vector<double>(5, 0.2), 1e-6, 0);
  CHECK(pattern.slice(2, 2).slice(3, 0, 2).abs().max().item<double>() == 0);
}

/// The kernel, on each set of instructions that this machine has.
template <class Check>
void on_each_table(Check check) {
  namespace kernels = ops::kernels;
  for (const kernels::Table* table : kernels::tables()) {
    CAPTURE(table->name);
    kernels::use(*table);
    check();
  }
  kernels::use(*kernels::tables().front());
}

at::Tensor fused(const Inputs& in, const at::Tensor& open, std::optional<double> softcap = std::nullopt) {
  return ops::kernels::attention(in.queries, in.keys, in.values, open, in.scale, softcap);
}

/// The same in three steps, whose tensors can be read.
at::Tensor in_steps(const Inputs& in, const at::Tensor& open, std::optional<double> softcap = std::nullopt) {
  const at::Tensor scores = ops::kernels::attention_scores(in.queries, in.keys, open, in.scale, softcap);
  return ops::kernels::mix_values(ops::kernels::attention_pattern(scores), in.values);
}

TEST_CASE("attention kernel: plain causality and one query behind a cache") {
  on_each_table([] {
    for (const Shape& s : shapes()) {
      CAPTURE(s.queries);
      CAPTURE(s.keys);
      CAPTURE(s.heads);
      const Inputs in(s), narrow(s, at::kBFloat16);
      const at::Tensor found = fused(in, {}), exact = stepwise(in, causal(s));
      CHECK(found.sizes() == at::IntArrayRef({s.batch, s.queries, s.heads, s.dim}));
      CHECK(found.is_contiguous());
      check_close(found, numbers(exact), 1e-5, 1e-5);
      check_close(fused(narrow, {}), numbers(exact), 0.03, 0.05);
      CHECK(same_bits(found, in_steps(in, {})));
      CHECK(same_bits(fused(narrow, {}), in_steps(narrow, {})));
    }
  });
}

TEST_CASE("attention kernel: scores, pattern and mixed values against doubles") {
  on_each_table([] {
    for (const Shape& s : shapes())
      for (std::optional<double> softcap : std::vector<std::optional<double>>{std::nullopt, 2.0}) {
        CAPTURE(s.queries);
        CAPTURE(s.keys);
        const Inputs in(s);
        const Oracle oracle(s, in, causal(s), softcap);
        const at::Tensor scores = ops::kernels::attention_scores(in.queries, in.keys, {}, in.scale, softcap);
        const at::Tensor pattern = ops::kernels::attention_pattern(scores);
        check_close(scores, oracle.scores, 1e-6, 1e-5);
        check_close(pattern, oracle.pattern, 1e-5, 1e-6);
        check_close(ops::kernels::mix_values(pattern, in.values), oracle.mixed, 1e-5, 1e-5);
        CHECK(same_bits(fused(in, {}, softcap), in_steps(in, {}, softcap)));
      }
  });
}

TEST_CASE("attention kernel: every rule, extent and padding") {
  on_each_table([] {
    for (const MaskRule& rule : rules())
      for (const ops::MaskExtent& extent : extents(rule))
        for (int kind = 0; kind < 4; ++kind) {
          const Shape s{2, 4, 2, extent.queries, extent.keys, 6};
          const Inputs in(s);
          const at::Tensor attended = padding(extent.seen, kind), open = ops::open_mask(rule, extent, attended);
          // Queries that may go nowhere included: they attend uniformly.
          const at::Tensor expected = stepwise(in, ops::additive_mask(open, at::kFloat));
          check_close(fused(in, open), numbers(expected), 1e-5, 1e-5);
          CHECK(same_bits(fused(in, open), in_steps(in, open)));
          if (ops::is_plain_causal(rule, extent, attended)) CHECK(same_bits(fused(in, {}), fused(in, open)));
        }
  });
}

TEST_CASE("attention kernel: long rows, many blocks, a mask with holes") {
  on_each_table([] {
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const Shape s{2, 6, 2, 301, 301, 40};
      const Inputs in(s, dtype);
      at::Tensor open = ops::open_mask({}, extent_of(s), at::ones({2, 301}, at::kLong)).clone();
      open.select(3, 7).fill_(false);
      open.narrow(3, 100, 90).fill_(false);
      const at::Tensor expected = stepwise(in, ops::additive_mask(open, dtype));
      const double bound = dtype == at::kFloat ? 1e-5 : 0.03;
      check_close(fused(in, open), numbers(expected), bound, bound);
      CHECK(same_bits(fused(in, open), in_steps(in, open)));
      CHECK(same_bits(fused(in, {}), in_steps(in, {})));
    }
  });
}

TEST_CASE("attention kernel: views of a cache are as good as copies") {
  const Shape s{1, 4, 2, 5, 5, 6};
  const Inputs in(s);
  auto inside = [](const at::Tensor& tensor) {
    at::Tensor storage = at::full({1, 2, 40, 6}, kNaN, at::kFloat);
    storage.narrow(2, 11, 5).copy_(tensor);
    return storage.narrow(2, 11, 5);
  };
  Inputs views = in;
  views.keys = inside(in.keys), views.values = inside(in.values);
  views.queries = in.queries.transpose(1, 2).contiguous().transpose(1, 2);
  on_each_table([&] { CHECK(same_bits(fused(views, {}), fused(in, {}))); });
}

TEST_CASE("attention kernel: a NaN reaches the rows that see it and no other") {
  const Shape s{1, 4, 2, 5, 5, 6};
  on_each_table([&] {
    Inputs in(s);
    in.queries = in.queries.clone();
    in.queries.select(2, 3).fill_(kNaN);
    for (const at::Tensor& broken : {fused(in, {}), in_steps(in, {})}) {
      CHECK(broken[0][3].isnan().all().item<bool>());
      CHECK(!broken[0].index_select(0, integers({0, 1, 2, 4})).isnan().any().item<bool>());
    }
    Inputs keys(s);
    keys.keys = keys.keys.clone();
    keys.keys.select(2, 3).fill_(kNaN);
    const at::Tensor seen = fused(keys, {});
    CHECK(same_bits(seen.nan_to_num(7), in_steps(keys, {}).nan_to_num(7)));
    CHECK(seen[0].slice(0, 3).isnan().all().item<bool>());
    CHECK(!seen[0].slice(0, 0, 3).isnan().any().item<bool>());
    Inputs values(s);
    values.values = values.values.clone();
    values.values.select(2, 4).fill_(kNaN);
    CHECK(same_bits(fused(values, {}).nan_to_num(7), in_steps(values, {}).nan_to_num(7)));
  });
}

TEST_CASE("attention kernel: what it is not for") {
  const Inputs in(Shape{1, 4, 2, 5, 5, 6});
  const at::Tensor open = at::ones({1, 1, 5, 5}, at::kBool);
  CHECK(fused(in, open).defined());
  CHECK(!fused(in, at::zeros({1, 1, 5, 5})).defined());            // added
  CHECK(!fused(in, at::ones({1, 4, 5, 5}, at::kBool)).defined());  // a head's own
  CHECK(!fused(in, at::ones({1, 1, 5, 4}, at::kBool)).defined());  // another extent
  CHECK(!fused(Inputs(Shape{1, 4, 2, 5, 5, 6}, at::kDouble), open).defined());
  CHECK(!ops::kernels::attention(in.queries, in.keys, in.values.to(at::kBFloat16), open, 1, {}).defined());
  CHECK(!ops::kernels::attention_pattern(at::empty({1, 2, 3, 4}, at::TensorOptions().device(at::kMeta))).defined());
}
