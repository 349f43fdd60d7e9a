// Steps that follow each other and are one operation where nobody looks between them: found in what a recipe has
// written, so that recipes know nothing of it. Attention's are written by its word.
#include <algorithm>

#include "gemloupe/plan/builder.h"

namespace gemloupe {
inline namespace v0 {
namespace {

class Finder {
 public:
  explicit Finder(const Plan& plan) : plan_(plan), reads_(static_cast<size_t>(plan.slots)) {
    for (size_t at = 0; at < plan.steps.size(); ++at)
      for (const Operand& input : plan.steps[at].inputs) last_read(input.slot, static_cast<Position>(at));
    for (const Row& row : plan.rows) last_read(row.value.slot, row.position);
    last_read(plan.stream_before_head, static_cast<Position>(plan.steps.size()));
  }

  std::optional<Fusion> at(Position first) const {
    if (auto found = norm_add(first)) return found;
    if (auto found = gated_mlp(first)) return found;
    return gated_up(first);
  }

 private:
  void last_read(Slot slot, Position at) {
    if (slot >= 0) reads_[static_cast<size_t>(slot)] = std::max(reads_[static_cast<size_t>(slot)], at);
  }
  template <class T>
  const Step* step(Position at) const {
    if (at >= static_cast<Position>(plan_.steps.size())) return nullptr;
    const Step& step = plan_.steps[static_cast<size_t>(at)];
    return std::holds_alternative<T>(step.op) ? &step : nullptr;
  }
  /// Whether what `made` writes is read before `end` and nowhere else.
  bool stays_inside(const Step& made, Position end) const { return reads_[static_cast<size_t>(made.outputs[0])] < end; }
  static bool is(const Operand& operand, const Step& made) {
    return operand.slot == made.outputs[0] && operand.view.kind == View::Kind::Same;
  }

  std::optional<Fusion> norm_add(Position first) const {
    const Step *norm = step<op::RmsNorm>(first), *add = step<op::Add>(first + 1);
    if (!norm || !add || !stays_inside(*norm, first + 2)) return std::nullopt;
    const bool behind = is(add->inputs[1], *norm), before = is(add->inputs[0], *norm);
    if (behind == before) return std::nullopt;
    const auto& o = std::get<op::RmsNorm>(norm->op);
    return Fusion{
        first,         first + 2,   op::NormAdd{o.eps, o.gain}, {norm->inputs[0], add->inputs[behind ? 0 : 1]},
        norm->weights, add->outputs};
  }

  std::optional<Fusion> gated_up(Position first) const {
    const Step *gelu = step<op::GeluTanh>(first), *up = step<op::Linear>(first + 1);
    const Step* product = step<op::Multiply>(first + 2);
    if (!gelu || !up || !product || up->weights.size() != 1 || product->inputs.size() != 2) return std::nullopt;
    if (!is(product->inputs[0], *gelu) || !is(product->inputs[1], *up)) return std::nullopt;
    if (!stays_inside(*gelu, first + 3) || !stays_inside(*up, first + 3)) return std::nullopt;
    return Fusion{first, first + 3, op::GatedUp{}, {gelu->inputs[0], up->inputs[0]}, up->weights, product->outputs};
  }

  /// Around the one before: taken where nothing of it is asked for.
  std::optional<Fusion> gated_mlp(Position first) const {
    const Step *gate = step<op::Linear>(first), *down = step<op::Linear>(first + 4);
    const std::optional<Fusion> neurons = gated_up(first + 1);
    if (!gate || !neurons || !down || gate->weights.size() != 1 || down->weights.size() != 1) return std::nullopt;
    const Step& product = *step<op::Multiply>(first + 3);
    const Operand &x = gate->inputs[0], &same = neurons->inputs[1];
    if (!is(neurons->inputs[0], *gate) || !is(down->inputs[0], product)) return std::nullopt;
    if (x.slot != same.slot || x.view.kind != View::Kind::Same || same.view.kind != View::Kind::Same)
      return std::nullopt;
    if (!stays_inside(*gate, first + 5) || !stays_inside(product, first + 5)) return std::nullopt;
    return Fusion{
        first,        first + 5, op::GatedMlp{}, {x}, {gate->weights[0], neurons->weights[0], down->weights[0]},
        down->outputs};
  }

  const Plan& plan_;
  std::vector<Position> reads_;
};

}  // namespace

void PlanBuilder::find_fusions() {
  const Finder finder(plan_);
  for (Position at = 0; at < here(); ++at)
    if (auto found = finder.at(at)) plan_.fusions.push_back(std::move(*found));
  std::sort(plan_.fusions.begin(), plan_.fusions.end(),
            [](const Fusion& a, const Fusion& b) { return a.first < b.first; });
}

}  // namespace v0
}  // namespace gemloupe
