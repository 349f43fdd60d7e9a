#include "gemloupe/ops/basic.h"
#include "ops/tensors.h"

using namespace gemloupe;
using namespace ops_tests;

TEST_CASE("embed: rows times the scale, which is rounded first") {
  const at::Tensor ids = integers({3, 0, 3, 6, 1, 2}).view({2, 3});
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor table = random({7, 5}, dtype);
    const double scale = std::sqrt(48.0), rounded = at::scalar_tensor(scale, dtype).item<double>();
    const at::Tensor out = ops::embed(ids, {table, {}}, scale, dtype);
    CHECK(out.sizes() == at::IntArrayRef({2, 3, 5}));
    // A product of two narrow numbers is exact in double: one rounding is all there is.
    CHECK(same_bits(out, (table.to(at::kDouble).index_select(0, ids.flatten()) * rounded).to(dtype).view({2, 3, 5})));
  }
}

TEST_CASE("embed: the result is no view of the table") {
  const at::Tensor table = random({4, 3}), before = table.clone();
  ops::embed(integers({1, 2}).unsqueeze(0), {table, {}}, 1.0, at::kFloat).fill_(0);
  CHECK(same_bits(table, before));
}

TEST_CASE("linear: odd shapes, with and without a bias") {
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = random({2, 3, 17}, dtype), weight = random({11, 17}, dtype, 2), bias = random({11}, dtype, 3);
    const at::Tensor exact = at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t());
    const double absolute = dtype == at::kFloat ? 1e-5 : 0.03;
    check_close(ops::linear(x, weight, {}), numbers(exact), half_ulp(dtype), absolute);
    check_close(ops::linear(x, weight, bias), numbers(exact + bias.to(at::kDouble)), half_ulp(dtype), absolute);
    CHECK((ops::linear(x, weight, bias).scalar_type() == dtype));
  }
  CHECK(ops::linear(random({1, 1, 1}), random({1, 1}), {}).numel() == 1);
  CHECK(ops::linear(at::empty({1, 0, 3}), random({2, 3}), {}).sizes() == at::IntArrayRef({1, 0, 2}));
}

TEST_CASE("linear: a broken row breaks no other") {
  const at::Tensor weight = random({4, 6}, at::kFloat, 2), clean = random({1, 3, 6});
  at::Tensor broken = clean.clone();
  broken[0][1][3] = kNaN;
  const at::Tensor expected = ops::linear(clean, weight, {}), found = ops::linear(broken, weight, {});
  CHECK(same_bits(found[0][0], expected[0][0]));
  CHECK(found[0][1].isnan().all().item<bool>());
  CHECK(same_bits(found[0][2], expected[0][2]));
}

TEST_CASE("gelu: the tanh approximation") {
  const at::Tensor x = at::cat({random({61}) * 3, at::tensor({0.0f, -0.0f, 30.0f, -30.0f})});
  std::vector<double> expected;
  for (double v : numbers(x))
    expected.push_back(0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))));
  check_close(ops::gelu_tanh(x), expected, 1e-5, 1e-6);
  check_close(ops::gelu_tanh(x.to(at::kBFloat16)), expected, 0.02, 0.02);
  // Not the exact one.
  CHECK(std::abs(ops::gelu_tanh(at::tensor({2.0f})).item<double>() - at::gelu(at::tensor({2.0f})).item<double>()) >
        5e-5);
  CHECK(ops::gelu_tanh(at::tensor({kInfinity}, at::kFloat)).item<double>() == kInfinity);
  CHECK(std::isnan(ops::gelu_tanh(at::tensor({kNaN}, at::kFloat)).item<double>()));
}

TEST_CASE("softcap: cap · tanh(x / cap), rounded at every operation") {
  const at::Tensor x = random({3, 40}) * 50;
  std::vector<double> expected;
  for (double v : numbers(x)) expected.push_back(30 * std::tanh(v / 30));
  check_close(ops::softcap(x, 30), expected, 1e-6, 1e-6);
  const at::Tensor narrow = x.to(at::kBFloat16);
  const at::Tensor stepwise = at::tanh((narrow.to(at::kFloat) / 30).to(at::kBFloat16).to(at::kFloat)).to(at::kBFloat16);
  CHECK(same_bits(ops::softcap(narrow, 30), (stepwise.to(at::kFloat) * 30).to(at::kBFloat16)));
  const at::Tensor edges = ops::softcap(at::tensor({kInfinity, -kInfinity, kNaN, 0.0}, at::kFloat), 30);
  check_close(edges, {30, -30, kNaN, 0}, 0, 0);
}

TEST_CASE("last_probabilities: the last row's softmax, in float32") {
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor logits = random({2, 3, 19}, dtype) * 4;
    const at::Tensor out = ops::last_probabilities(logits);
    CHECK((out.scalar_type() == at::kFloat));
    CHECK(out.sizes() == at::IntArrayRef({2, 19}));
    std::vector<double> expected;
    for (int64_t row = 0; row < 2; ++row) {
      double sum = 0;
      std::vector<double> powers;
      for (double v : numbers(logits[row][2])) sum += powers.emplace_back(std::exp(v));
      for (double power : powers) expected.push_back(power / sum);
    }
    check_close(out, expected, 1e-5, 1e-8);
  }
  const at::Tensor huge = ops::last_probabilities(at::tensor({1e30f, 1e30f, -kInfinity}, at::kFloat).view({1, 1, 3}));
  check_close(huge, {0.5, 0.5, 0}, 1e-6, 0);
}
