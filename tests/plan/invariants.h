// What holds in every plan, whatever the family: each fault in words, none where all is well. Written from what the
// engine relies on, not from how the builder does it.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gemloupe/base/errors.h"
#include "gemloupe/plan/plan.h"

namespace plan_tests {

using namespace gemloupe;

class Invariants {
 public:
  explicit Invariants(const Plan& plan) : plan_(plan) {}

  std::vector<std::string> faults() {
    if (!slots()) return faults_;  // the rest looks things up by slot
    arity();
    lifetimes();
    fusions();
    modules();
    rows();
    catalogue_is_complete();
    weights();
    head();
    return faults_;
  }

 private:
  using Reads = std::map<Slot, std::vector<Position>>;

  void need(bool holds, const std::string& what) {
    if (!holds) faults_.push_back(what);
  }
  Position steps() const { return static_cast<Position>(plan_.steps.size()); }
  const Step& step(Position at) const { return plan_.steps[static_cast<size_t>(at)]; }
  bool is_slot(Slot slot) const { return slot >= 0 && slot < plan_.slots; }
  bool is_input(Slot slot) const {
    return slot == plan_.input_ids || slot == plan_.attention_mask || slot == plan_.position_ids;
  }
  static std::string number(int64_t n) { return std::to_string(n); }

  /// Every slot is an input or is written once, and before anything reads it.
  bool slots() {
    std::map<Slot, Position> written;
    need(std::set<Slot>{plan_.input_ids, plan_.attention_mask, plan_.position_ids}.size() == 3, "three inputs");
    for (Position at = 0; at < steps(); ++at) {
      for (const Operand& input : step(at).inputs) {
        if (!is_slot(input.slot)) return need(false, "step " + number(at) + " reads no slot"), false;
        need(is_input(input.slot) || written.contains(input.slot),
             "step " + number(at) + " reads slot " + number(input.slot) + " before it is written");
      }
      for (Slot output : step(at).outputs) {
        if (!is_slot(output)) return need(false, "step " + number(at) + " writes no slot"), false;
        need(!is_input(output) && written.emplace(output, at).second, "slot " + number(output) + " is written twice");
      }
      need(!step(at).outputs.empty(), "step " + number(at) + " writes nothing");
    }
    if (plan_.producer.size() != static_cast<size_t>(plan_.slots)) return need(false, "a producer a slot"), false;
    for (Slot slot = 0; slot < plan_.slots; ++slot) {
      need(is_input(slot) || written.contains(slot), "slot " + number(slot) + " is never written");
      need(producer(slot) == (written.contains(slot) ? written[slot] : -1),
           "the producer of slot " + number(slot) + " is wrong");
    }
    for (const Row& row : plan_.rows)
      if (!is_slot(row.value.slot)) return need(false, row.name + " has no slot"), false;
    return faults_.empty();
  }

  Position producer(Slot slot) const { return plan_.producer[static_cast<size_t>(slot)]; }

  /// As many inputs, outputs and weights as the engine takes for that op.
  void arity() {
    constexpr size_t any = 1 << 20;
    struct Arity {
      size_t inputs, outputs, least, most;
      Arity operator()(const op::Replace&) { return {1, 1, 0, 0}; }
      Arity operator()(const op::IsId&) { return {1, 1, 0, 0}; }
      Arity operator()(const op::Embed&) { return {1, 1, 1, 1}; }
      Arity operator()(const op::Rotary&) { return {2, 2, 0, 0}; }
      Arity operator()(const op::Mask&) { return {3, 1, 0, 0}; }
      Arity operator()(const op::RmsNorm& o) {
        const size_t weights = o.gain == Gain::None ? 0 : 1;
        return {1, 1, weights, weights};
      }
      Arity operator()(const op::Linear&) { return {1, 1, 1, 2}; }
      Arity operator()(const op::Rotate&) { return {3, 1, 0, 0}; }
      Arity operator()(const op::Extend&) { return {2, 2, 0, 0}; }
      Arity operator()(const op::Borrow&) { return {2, 2, 0, 0}; }
      Arity operator()(const op::Scores&) { return {3, 1, 0, 0}; }
      Arity operator()(const op::Softmax&) { return {1, 1, 0, 0}; }
      Arity operator()(const op::Mix&) { return {2, 1, 0, 0}; }
      Arity operator()(const op::FusedAttention&) { return {4, 1, 0, 0}; }
      Arity operator()(const op::GatedUp&) { return {2, 1, 1, 1}; }
      Arity operator()(const op::GatedMlp&) { return {1, 1, 3, 3}; }
      Arity operator()(const op::NormAdd&) { return {2, 1, 0, 1}; }
      Arity operator()(const op::GeluTanh&) { return {1, 1, 0, 0}; }
      Arity operator()(const op::Multiply&) { return {any, 1, 0, 1}; }
      Arity operator()(const op::Scale&) { return {1, 1, 0, 0}; }
      Arity operator()(const op::Split&) { return {1, any, 0, 0}; }
      Arity operator()(const op::RouterProbabilities&) { return {1, 1, 0, 0}; }
      Arity operator()(const op::Route&) { return {1, 2, 1, 1}; }
      Arity operator()(const op::ExpertsGateUp&) { return {2, 2, 1, 1}; }
      Arity operator()(const op::ExpertsDown&) { return {3, 1, 1, 1}; }
      Arity operator()(const op::SumSlots&) { return {2, 1, 0, 0}; }
      Arity operator()(const op::Add&) { return {2, 1, 0, 0}; }
      Arity operator()(const op::Softcap&) { return {1, 1, 0, 0}; }
      Arity operator()(const op::LastProbabilities&) { return {1, 1, 0, 0}; }
    };
    auto holds = [](const Op& op, size_t inputs, size_t outputs, size_t weights) {
      const Arity a = std::visit(Arity{}, op);
      // A product is of two values, or of one and a weight.
      if (std::holds_alternative<op::Multiply>(op)) return inputs + weights == 2 && inputs >= 1 && outputs == 1;
      return inputs == a.inputs && (outputs == a.outputs || a.outputs == any) && weights >= a.least &&
             weights <= a.most;
    };
    for (Position at = 0; at < steps(); ++at)
      need(holds(step(at).op, step(at).inputs.size(), step(at).outputs.size(), step(at).weights.size()),
           "step " + number(at) + " has the wrong number of operands");
    for (const Fusion& fusion : plan_.fusions)
      need(holds(fusion.op, fusion.inputs.size(), fusion.outputs.size(), fusion.weights.size()),
           "the fusion at " + number(fusion.first) + " has the wrong number of operands");
  }

  /// A slot dies once, after everything that reads it, and no later than there is reason for.
  void lifetimes() {
    Reads reads;
    for (Position at = 0; at < steps(); ++at)
      for (const Operand& input : step(at).inputs) reads[input.slot].push_back(at);
    for (const Fusion& fusion : plan_.fusions)
      for (const Operand& input : fusion.inputs) reads[input.slot].push_back(fusion.end - 1);
    for (const Row& row : plan_.rows) reads[row.value.slot].push_back(row.position);
    std::map<Slot, Position> death;
    for (Position at = 0; at < steps(); ++at)
      for (Slot slot : step(at).dies_after)
        need(death.emplace(slot, at).second, "slot " + number(slot) + " dies twice");
    for (Slot slot = 0; slot < plan_.slots; ++slot) {
      const Position dies = death.contains(slot) ? death[slot] : steps();
      const std::vector<Position>& all = reads[slot];
      for (Position at : all)
        need(at <= dies, "slot " + number(slot) + " is read at " + number(at) + ", but died after " + number(dies));
      need(dies >= producer(slot), "slot " + number(slot) + " dies before it is written");
      const bool has_reason = dies == producer(slot) || std::find(all.begin(), all.end(), dies) != all.end();
      need(has_reason || (all.empty() && is_input(slot)), "slot " + number(slot) + " outlives its last reader");
    }
  }

  bool is_inside_fusion(Slot slot) const {
    for (const Fusion& fusion : plan_.fusions)
      if (producer(slot) >= fusion.first && producer(slot) < fusion.end && fusion.outputs[0] != slot) return true;
    return false;
  }

  /// None overlaps another, but may lie inside it. A fusion reads what its steps read from outside, writes what they
  /// write for the outside, and nothing else.
  void fusions() {
    Position first = -1, after = 0;
    for (const Fusion& fusion : plan_.fusions) {
      const std::string name = "the fusion at " + number(fusion.first);
      const bool is_nested = fusion.first > first && fusion.end <= after;
      if ((fusion.first < after && !is_nested) || fusion.end <= fusion.first || fusion.end > steps())
        return need(false, name + " overlaps another or lies outside the plan");
      if (!is_nested) first = fusion.first, after = fusion.end;
      std::set<Slot> made, read, given, handed_on;
      for (Position at = fusion.first; at < fusion.end; ++at) {
        for (const Operand& input : step(at).inputs)
          if (!made.contains(input.slot)) read.insert(input.slot);
        made.insert(step(at).outputs.begin(), step(at).outputs.end());
      }
      for (const Operand& input : fusion.inputs) given.insert(input.slot);
      need(given == read, name + " does not read what its steps read");
      for (Position at = fusion.end; at < steps(); ++at)
        for (const Operand& input : step(at).inputs)
          if (made.contains(input.slot)) handed_on.insert(input.slot);
      need(std::set<Slot>(fusion.outputs.begin(), fusion.outputs.end()) == handed_on,
           name + " does not write what later steps read");
    }
  }

  /// The tree: children inside their parents, one after the other, and each step in the innermost module around it.
  void modules() {
    if (plan_.modules.empty()) return need(false, "there is a root");
    need(plan_.modules[0].path.empty() && plan_.modules[0].parent == -1, "the root is the first module");
    need(plan_.modules[0].first == 0 && plan_.modules[0].end == steps(), "the root holds every step");
    std::set<std::string> paths;
    std::vector<int> named_as_child(plan_.modules.size());
    for (size_t id = 0; id < plan_.modules.size(); ++id) {
      const Module& module = plan_.modules[id];
      need(paths.insert(module.path).second, "two modules are called " + module.path);
      need(plan_.find_module(module.path) == static_cast<ModuleId>(id), module.path + " is not found by its name");
      need(module.first <= module.end, module.path + " ends before it begins");
      need(!module.class_name.empty(), module.path + " has a class");
      for (ModuleId child_id : module.children) {
        const Module& child = plan_.module(child_id);
        ++named_as_child[static_cast<size_t>(child_id)];
        need(child.parent == static_cast<ModuleId>(id), child.path + " has another parent than " + module.path);
        need(child.path == (module.path.empty() ? "" : module.path + ".") + child.name, child.path + " is no path");
        need(child.first >= module.first && child.end <= module.end, child.path + " reaches out of " + module.path);
        for (ModuleId other : module.children)
          need(other == child_id || plan_.module(other).end <= child.first || plan_.module(other).first >= child.end,
               child.path + " overlaps " + plan_.module(other).path);
      }
      const bool has_ports = !module.arguments.empty() || module.result.has_value();
      if (!module.path.empty() && module.children.empty())
        need(has_ports != !module.no_ports.empty(), module.path + " has ports, or a reason why not");
    }
    for (size_t id = 1; id < named_as_child.size(); ++id)
      need(named_as_child[id] == 1, plan_.modules[id].path + " is no one's only child");
    for (Position at = 0; at < steps(); ++at) {
      const Module& module = plan_.module(step(at).module);
      need(at >= module.first && at < module.end, "step " + number(at) + " lies outside " + module.path);
      for (ModuleId child : module.children)
        need(at < plan_.module(child).first || at >= plan_.module(child).end,
             "step " + number(at) + " lies inside " + plan_.module(child).path);
    }
  }

  void rows() {
    std::set<std::string> names;
    for (size_t id = 0; id < plan_.rows.size(); ++id) {
      const Row& row = plan_.rows[id];
      need(!row.name.empty() && names.insert(row.name).second, "two values are called " + row.name);
      need(plan_.row_index.contains(row.name) && plan_.find_row(row.name) == static_cast<RowId>(id),
           row.name + " is not found by its name");
      need(row.position >= 0 && row.position <= steps(), row.name + " lies outside the plan");
      need(row.position > producer(row.value.slot), row.name + " can be read before it is made");
      need(!row.read_at.empty(), row.name + " says where it is read");
      if (row.spec) {
        need(row.sizes.size() == row.spec->axes.size(), row.name + " has a size an axis");
        // Gemma 4's MLP has experts beside it.
        need(row.meaning.starts_with(row.spec->meaning) || row.meaning.starts_with("What the MLP (and,"),
             row.name + " means what the catalogue says");
        for (size_t i = 0; i < row.sizes.size(); ++i) {
          const Axis axis = row.spec->axes[i];
          const bool of_the_run = axis == Axis::batch || axis == Axis::seq || axis == Axis::query || axis == Axis::key;
          need(of_the_run ? row.sizes[i] == -1 : row.sizes[i] > 0,
               row.name + " has the size " + number(row.sizes[i]) + " for " + std::string(name_of(axis)));
        }
        need(!is_inside_fusion(row.value.slot) || lies_inside_fusion(row.position),
             row.name + " is asked for outside the fusion that leaves it out");
      }
      if (!row.is_argument) need(row.consumers.empty(), row.name + " binds consumers, but is no argument");
      for (auto [at, index] : row.consumers)
        need(at >= 0 && at < steps() && index >= 0 && index < static_cast<int>(step(at).inputs.size()) &&
                 step(at).inputs[static_cast<size_t>(index)].slot == row.value.slot,
             row.name + " names a consumer that reads something else");
    }
    for (const auto& [name, id] : plan_.row_index)
      need(id >= 0 && id < static_cast<RowId>(plan_.rows.size()), name + " names no row");
    for (size_t id = 1; id < plan_.modules.size(); ++id) ports(plan_.modules[id]);
    layers_are_ordered();
  }

  bool lies_inside_fusion(Position at) const {
    for (const Fusion& fusion : plan_.fusions)
      if (at > fusion.first && at < fusion.end) return true;
    return false;
  }

  static void leaves(const Part& part, std::vector<RowId>& out) {
    if (part.row >= 0) out.push_back(part.row);
    for (const Part& member : part.members) leaves(member, out);
  }

  /// An argument can be written before the module runs, and reaches all of its steps and no other.
  void ports(const Module& module) {
    std::vector<RowId> arguments, results;
    for (const Argument& argument : module.arguments) leaves(argument.part, arguments);
    if (module.result) leaves(*module.result, results);
    for (RowId id : arguments) {
      const Row& row = plan_.row(id);
      // A text model inside a multimodal one is called with what was looked up in it.
      const bool in_time = module.children.empty() ? row.position == module.first : row.position >= module.first;
      need(row.is_argument && in_time, row.name + " is no argument of " + module.path);
      std::set<std::pair<Position, int>> inside;
      for (Position at = module.first; at < module.end; ++at)
        for (size_t i = 0; i < step(at).inputs.size(); ++i)
          if (step(at).inputs[i].slot == row.value.slot) inside.emplace(at, static_cast<int>(i));
      need(inside == std::set<std::pair<Position, int>>(row.consumers.begin(), row.consumers.end()),
           row.name + " does not reach what reads it inside " + module.path);
    }
    if (!module.arguments.empty() && module.arguments[0].part.row >= 0)
      need(plan_.row_index.contains(module.path + ".input") &&
               plan_.row_index.at(module.path + ".input") == module.arguments[0].part.row,
           module.path + ".input is its first argument");
    for (RowId id : results) {
      const Row& row = plan_.row(id);
      need(!row.is_argument && row.position == module.end, row.name + " is no result of " + module.path);
    }
  }

  void layers_are_ordered() {
    std::vector<Position> first(static_cast<size_t>(plan_.num_layers()), steps()), last(first.size(), 0);
    for (const Row& row : plan_.rows) {
      if (row.layer < 0) continue;
      if (row.layer >= plan_.num_layers()) return need(false, row.name + " lies in no block");
      auto layer = static_cast<size_t>(row.layer);
      first[layer] = std::min(first[layer], row.position);
      last[layer] = std::max(last[layer], row.position);
    }
    for (size_t layer = 1; layer < first.size(); ++layer)
      need(first[layer] >= last[layer - 1], "block " + number(static_cast<int64_t>(layer)) + " begins too early");
    need(plan_.layer_kinds.size() == plan_.layer_sizes.size(), "a kind a block");
  }

  /// Every value of the catalogue is there once, or is absent with a reason, in every block.
  void catalogue_is_complete() {
    for (const ValueSpec* spec : catalogue()) {
      if (is_vision(spec->host)) continue;
      std::vector<std::string> prefixes{""};
      if (spec->host != Host::Model) {
        prefixes.clear();
        const char* inside = spec->host == Host::Attention ? "self_attn." : spec->host == Host::Mlp ? "mlp." : "";
        for (int64_t i = 0; i < plan_.num_layers(); ++i) prefixes.push_back("layers." + number(i) + "." + inside);
      }
      for (const std::string& prefix : prefixes) {
        const std::string name = prefix + std::string(spec->name);
        const auto row = plan_.row_index.find(name);
        const auto absent = plan_.absence_index.find(name);
        need((row != plan_.row_index.end()) != (absent != plan_.absence_index.end()),
             name + " is neither produced nor absent, or both");
        if (row != plan_.row_index.end())
          need(plan_.row(row->second).spec == spec, name + " is another value of the catalogue");
        if (absent != plan_.absence_index.end())
          need(!plan_.absences[absent->second].reason.empty(), name + " is absent without a reason");
      }
    }
  }

  void weights() {
    std::set<std::string> names;
    std::vector<int> used(plan_.weights.size()), wanted(plan_.weights.size(), 1);
    for (const Module& module : plan_.modules)
      for (const auto& [suffix, id] : module.weights) {
        if (id < 0 || id >= static_cast<WeightId>(plan_.weights.size())) return need(false, "a weight that is there");
        need(plan_.weights[static_cast<size_t>(id)].name == module.path + "." + suffix,
             module.path + " holds a weight of another name");
        if (!module.runs) wanted[static_cast<size_t>(id)] = 0;  // a tower's
      }
    for (const Step& each : plan_.steps)
      for (WeightId id : each.weights) ++used[static_cast<size_t>(id)];
    for (size_t id = 0; id < plan_.weights.size(); ++id) {
      const WeightSlot& weight = plan_.weights[id];
      need(names.insert(weight.name).second, "two weights are called " + weight.name);
      need(used[id] == wanted[id], weight.name + " is used by one step, or by none in a tower");
      need(weight.shape.empty() ? weight.buffer : *std::min_element(weight.shape.begin(), weight.shape.end()) > 0,
           weight.name + " has a shape, or is a number that the file holds");
      if (!weight.tied_to) continue;
      const WeightSlot& owner = plan_.weights[static_cast<size_t>(*weight.tied_to)];
      need(!owner.tied_to && owner.shape == weight.shape, weight.name + " cannot share " + owner.name);
    }
  }

  /// From the head on, each step reads what the one before it wrote: rows of logits are computed on their own.
  void head() {
    if (plan_.head < 1 || plan_.head >= steps()) return need(false, "the head is a step");
    need(std::holds_alternative<op::Linear>(step(plan_.head).op), "the head is a projection");
    need(std::holds_alternative<op::RmsNorm>(step(plan_.head - 1).op), "the final norm comes before the head");
    need(step(plan_.head - 1).outputs[0] == plan_.stream_before_head, "the head reads the final norm");
    Slot read = plan_.stream_before_head;
    for (Position at = plan_.head; at < steps(); ++at) {
      need(step(at).inputs.size() == 1 && step(at).inputs[0].slot == read && step(at).outputs.size() == 1,
           "from the head on the plan is a chain");
      read = step(at).outputs[0];
    }
    need(plan_.row(plan_.next_token_probs).value.slot == read, "the chain ends with the probabilities");
    need(plan_.row(plan_.logits).position > plan_.head, "logits come after the head");
  }

  const Plan& plan_;
  std::vector<std::string> faults_;
};

inline std::vector<std::string> faults(const Plan& plan) {
  return Invariants(plan).faults();
}

/// All faults in one text: for CHECK(faults_of(plan) == "").
inline std::string faults_of(const Plan& plan) {
  std::string out;
  for (const std::string& fault : faults(plan)) out += fault + "\n";
  return out;
}

}  // namespace plan_tests
