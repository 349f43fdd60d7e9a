#include "gemloupe/base/errors.h"
#include "gemloupe/ops/basic.h"
#include "gemloupe/ops/experts.h"
#include "ops/tensors.h"

using namespace gemloupe;
using namespace ops_tests;

namespace {

struct Mixture {
  int64_t experts = 5, hidden = 6, inner = 4;
  at::Tensor gate_up = random({experts, 2 * inner, hidden}, at::kFloat, 2);
  at::Tensor down = random({experts, hidden, inner}, at::kFloat, 3);

  at::Tensor run(const at::Tensor& x, const at::Tensor& indices, const at::Tensor& weights) const {
    auto [gate, up] = ops::experts_gate_up(x, indices, gate_up);
    return ops::experts_down(ops::gelu_tanh(gate) * up, indices, weights, down);
  }
  /// One expert on one token, as the formula has it.
  at::Tensor alone(const at::Tensor& row, int64_t expert) const {
    auto halves = at::linear(row, gate_up[expert]).chunk(2, -1);
    return at::linear(ops::gelu_tanh(halves[0]) * halves[1], down[expert]);
  }
};

}  // namespace

TEST_CASE("experts: every slot is its own expert's output times its weight") {
  const Mixture m;
  const at::Tensor x = random({2, 3, m.hidden}, at::kFloat, 7);
  const at::Tensor indices = integers({4, 0, 0, 4, 2, 3, 3, 2, 1, 0, 4, 4}).view({2, 3, 2});
  const at::Tensor weights = random({2, 3, 2}, at::kFloat, 8);
  const at::Tensor found = m.run(x, indices, weights);
  CHECK(found.sizes() == at::IntArrayRef({2, 3, 2, 6}));
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t s = 0; s < 3; ++s)
      for (int64_t k = 0; k < 2; ++k) {
        const at::Tensor expected = m.alone(x[b][s], indices[b][s][k].item<int64_t>()) * weights[b][s][k];
        CHECK(at::allclose(found[b][s][k], expected, 1e-5, 1e-6));
      }
  CHECK(at::equal(ops::sum_slots(found, at::kFloat), found.sum(2)));
}

TEST_CASE("experts: one that nobody chooses is never touched") {
  Mixture m;
  m.gate_up[3].fill_(kNaN);
  m.down[3].fill_(kNaN);
  const at::Tensor out =
      m.run(random({1, 4, m.hidden}), integers({0, 1, 1, 2, 4, 0, 2, 4}).view({1, 4, 2}), at::ones({1, 4, 2}));
  CHECK(!out.isnan().any().item<bool>());
}

TEST_CASE("experts: an index that is no expert is refused") {
  const Mixture m;
  for (int64_t bad : {int64_t{-1}, int64_t{5}, int64_t{1} << 40}) {
    const at::Tensor indices = integers({0, bad}).view({1, 1, 2});
    CHECK_THROWS_AS(ops::experts_gate_up(random({1, 1, m.hidden}), indices, m.gate_up), BadValue);
  }
}

TEST_CASE("experts: weights are renormalised, then scaled") {
  const at::Tensor probabilities = ops::router_probabilities(random({2, 3, 7}, at::kBFloat16, 5));
  CHECK((probabilities.scalar_type() == at::kFloat));
  const at::Tensor scale = random({7}, at::kBFloat16, 6);
  auto [weights, indices] = ops::route(probabilities, scale, 3);
  CHECK((weights.scalar_type() == at::kFloat));
  const at::Tensor chosen = probabilities.gather(2, indices);
  CHECK(at::allclose(weights, chosen / chosen.sum(-1, true) * scale.to(at::kFloat).index({indices}), 1e-6));
  CHECK(at::equal(std::get<0>(chosen.sort(2, /*descending=*/true)), chosen));
}

TEST_CASE("experts: gradients reach the token, the weight and the chosen experts") {
  Mixture m;
  m.down.requires_grad_(true);
  at::Tensor x = random({1, 2, m.hidden}).requires_grad_(true);
  at::Tensor weights = random({1, 2, 2}, at::kFloat, 9).requires_grad_(true);
  m.run(x, integers({0, 2, 2, 4}).view({1, 2, 2}), weights).sum().backward();
  CHECK(x.grad().abs().sum().item<double>() > 0);
  CHECK(weights.grad().abs().sum().item<double>() > 0);
  CHECK(m.down.grad()[2].abs().sum().item<double>() > 0);
  CHECK(m.down.grad()[1].abs().sum().item<double>() == 0);
}
