// The last pass over a plan: indexes, who consumes what, and after which step each slot can be dropped.
#include <algorithm>

#include "gemloupe/base/errors.h"
#include "gemloupe/plan/builder.h"

namespace gemloupe {
inline namespace v0 {

void PlanBuilder::index_modules() {
  for (size_t id = 0; id < plan_.modules.size(); ++id) {
    plan_.module_index[plan_.modules[id].path] = static_cast<ModuleId>(id);
    plan_.module_index.emplace(plan_.modules[id].standard, static_cast<ModuleId>(id));
  }
  // Native spellings of rows: "model.layers.0.mlp.input" beside "layers.0.mlp.input".
  std::vector<std::pair<std::string, RowId>> native;
  for (const auto& [name, row] : plan_.row_index)
    for (const auto& [from, to] : standard_prefixes_)
      if (auto other = renamed(name, to, from)) native.emplace_back(*other, row);
  for (auto& [name, row] : native) plan_.row_index.emplace(name, row);
  for (size_t i = 0; i < plan_.absences.size(); ++i)
    for (const auto& [from, to] : standard_prefixes_)
      if (auto other = renamed(plan_.absences[i].name, to, from)) plan_.absence_index.emplace(*other, i);
}

void PlanBuilder::mark_lifetimes() {
  // A slot lives until its last consumer has run, and as long as a row still can be read.
  std::vector<Position> last(static_cast<size_t>(plan_.slots), -1);
  plan_.producer.assign(static_cast<size_t>(plan_.slots), -1);
  auto keep = [&](Slot slot, Position at) {
    last[static_cast<size_t>(slot)] = std::max(last[static_cast<size_t>(slot)], at);
  };
  for (Position at = 0; at < here(); ++at) {
    const Step& step = plan_.steps[static_cast<size_t>(at)];
    for (const Operand& input : step.inputs) keep(input.slot, at);
    if (const auto* extend = std::get_if<op::Extend>(&step.op))
      plan_.caches = std::max(plan_.caches, extend->cache + 1);
    for (Slot output : step.outputs) {
      keep(output, at);
      plan_.producer[static_cast<size_t>(output)] = at;
    }
  }
  for (const Row& row : plan_.rows) keep(row.value.slot, row.position);
  for (const Fusion& fusion : plan_.fusions)
    for (const Operand& input : fusion.inputs) keep(input.slot, fusion.end - 1);
  for (Slot slot = 0; slot < plan_.slots; ++slot) {
    Position at = last[static_cast<size_t>(slot)];
    if (at >= 0 && at < here()) plan_.steps[static_cast<size_t>(at)].dies_after.push_back(slot);
  }
}

// What the catalogue has and this plan neither makes nor misses for a reason of its own, no checkpoint of the family
// has.
void PlanBuilder::mark_absent() {
  for (const ValueSpec* spec : catalogue()) {
    if (is_vision(spec->host)) continue;  // whole towers are there or not
    const bool in_blocks = spec->host != Host::Model;
    for (int layer = in_blocks ? 0 : -1; layer < (in_blocks ? static_cast<int>(plan_.num_layers()) : 0); ++layer) {
      layer_ = layer;
      std::string name = host_prefix(*spec) + std::string(spec->name);
      if (plan_.row_index.contains(name) || plan_.absence_index.contains(name)) continue;
      if (spec->only_of.empty()) continue;  // every family makes it; the tests' plans need not
      absent(*spec, "no checkpoint of " + plan_.family + " has it, it belongs to " + std::string(spec->only_of));
      plan_.absences.back().of_family = false;
    }
  }
  layer_ = -1;
}

Plan PlanBuilder::finish() {
  check(open_.size() == 1, "every module is closed");
  plan_.modules[0].end = here();
  mark_absent();
  index_modules();
  find_fusions();
  mark_lifetimes();
  plan_.logits = plan_.find_row(std::string(values::logits.name));
  plan_.next_token_probs = plan_.find_row(std::string(values::next_token_probs.name));
  plan_.head = plan_.row(plan_.find_row(std::string(values::final_norm_output.name))).position;
  return std::move(plan_);
}

std::string op_name(const Op& op) {
  struct Name {
    std::string operator()(const op::Replace&) const { return "the padding of what is no text"; }
    std::string operator()(const op::IsId&) const { return "the comparison with the image's id"; }
    std::string operator()(const op::Embed&) const { return "the look-up"; }
    std::string operator()(const op::Rotary&) const { return "the rotary table"; }
    std::string operator()(const op::Mask&) const { return "the mask"; }
    std::string operator()(const op::RmsNorm&) const { return "the norm"; }
    std::string operator()(const op::Linear&) const { return "the projection"; }
    std::string operator()(const op::Rotate&) const { return "the rotary embedding"; }
    std::string operator()(const op::Extend&) const { return "the key/value cache"; }
    std::string operator()(const op::Borrow&) const { return "the borrowed keys and values"; }
    std::string operator()(const op::Scores&) const { return "the masked scores"; }
    std::string operator()(const op::Softmax&) const { return "the softmax"; }
    std::string operator()(const op::Mix&) const { return "the mix of values"; }
    std::string operator()(const op::FusedAttention&) const { return "attention"; }
    std::string operator()(const op::GatedUp&) const { return "the up projection with the gate"; }
    std::string operator()(const op::GatedMlp&) const { return "the MLP"; }
    std::string operator()(const op::NormAdd&) const { return "a norm and an addition"; }
    std::string operator()(const op::GeluTanh&) const { return "the activation"; }
    std::string operator()(const op::Multiply&) const { return "the gated product"; }
    std::string operator()(const op::Scale&) const { return "the scaling"; }
    std::string operator()(const op::Split&) const { return "the split into blocks"; }
    std::string operator()(const op::RouterProbabilities&) const { return "the router's softmax"; }
    std::string operator()(const op::Route&) const { return "the choice of experts"; }
    std::string operator()(const op::ExpertsGateUp&) const { return "the experts' gate and up projections"; }
    std::string operator()(const op::ExpertsDown&) const { return "the experts"; }
    std::string operator()(const op::SumSlots&) const { return "the sum over the chosen experts"; }
    std::string operator()(const op::Add&) const { return "the residual add"; }
    std::string operator()(const op::Softcap&) const { return "the softcap"; }
    std::string operator()(const op::LastProbabilities&) const { return "the softmax of the last row"; }
  };
  return std::visit(Name{}, op);
}

}  // namespace v0
}  // namespace gemloupe
