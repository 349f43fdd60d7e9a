#include "gemloupe/ops/attention.h"
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

TEST_CASE("fused attention: plain causality and one query behind a cache") {
  for (const Shape& s : shapes()) {
    if (s.queries != 1 && s.queries != s.keys) continue;
    CAPTURE(s.queries);
    CAPTURE(s.keys);
    CAPTURE(s.heads);
    const Inputs in(s);
    const at::Tensor fused = ops::fused_attention(in.queries, in.keys, in.values, {}, in.scale, false);
    CHECK(fused.sizes() == at::IntArrayRef({s.batch, s.queries, s.heads, s.dim}));
    CHECK(fused.is_contiguous());
    check_close(fused, numbers(stepwise(in, causal(s))), 1e-5, 1e-5);
    const Inputs narrow(s, at::kBFloat16);
    const at::Tensor exact = stepwise(in, causal(s));
    check_close(ops::fused_attention(narrow.queries, narrow.keys, narrow.values, {}, narrow.scale, false),
                numbers(exact), 0.03, 0.05);
  }
}

TEST_CASE("fused attention: every rule, extent and padding") {
  for (const MaskRule& rule : rules())
    for (const ops::MaskExtent& extent : extents(rule))
      for (int kind = 0; kind < 4; ++kind) {
        const Shape s{2, 4, 2, extent.queries, extent.keys, 6};
        const Inputs in(s);
        const at::Tensor attended = padding(extent.seen, kind), open = ops::open_mask(rule, extent, attended);
        const at::Tensor additive = ops::additive_mask(open, at::kFloat), expected = stepwise(in, additive);
        const at::Tensor reaches =
            open.any(-1).squeeze(1);  // [batch, queries]: what the others get is nobody's concern
        auto check_mask = [&](const at::Tensor& mask) {
          const at::Tensor found =
              ops::fused_attention(in.queries, in.keys, in.values, mask, in.scale, rule.bidirectional);
          CHECK(found.isfinite().all().item<bool>());
          const double error = ((found - expected).abs().amax({2, 3}) * reaches).max().item<double>();
          CHECK(error < 1e-5);
        };
        check_mask(open);
        check_mask(additive);
        if (ops::is_plain_causal(rule, extent, attended)) check_mask({});
      }
}

TEST_CASE("fused attention: both ways, without a mask") {
  const Shape s{2, 4, 1, 7, 7, 6};
  const Inputs in(s);
  check_close(ops::fused_attention(in.queries, in.keys, in.values, {}, in.scale, true),
              numbers(stepwise(in, at::zeros({1, 1, 7, 7}))), 1e-5, 1e-5);
}

TEST_CASE("fused attention: views of a cache are as good as copies, and a broken query breaks no other") {
  const Shape s{1, 4, 2, 5, 5, 6};
  Inputs in(s);
  const at::Tensor expected = ops::fused_attention(in.queries, in.keys, in.values, {}, in.scale, false);
  auto inside = [](const at::Tensor& tensor) {
    at::Tensor storage = at::full({1, 2, 40, 6}, kNaN, at::kFloat);
    storage.narrow(2, 11, 5).copy_(tensor);
    return storage.narrow(2, 11, 5);
  };
  const at::Tensor found = ops::fused_attention(in.queries, inside(in.keys), inside(in.values), {}, in.scale, false);
  CHECK(same_bits(found, expected));
  in.queries = in.queries.clone();
  in.queries.select(2, 3).fill_(kNaN);
  // libtorch's fused kernel does not promise to carry the NaN into the row itself.
  CHECK(stepwise(in, causal(s))[0][3].isnan().all().item<bool>());
  for (const at::Tensor& broken :
       {ops::fused_attention(in.queries, in.keys, in.values, {}, in.scale, false), stepwise(in, causal(s))}) {
    CHECK(!broken[0].index_select(0, integers({0, 1, 2, 4})).isnan().any().item<bool>());
  }
}
