#include "gemloupe/plan/builder.h"

#include <algorithm>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {

PartSpec PartSpec::tuple(std::vector<PartSpec> members, std::vector<std::string> names) {
  PartSpec part;
  part.is_tuple = true;
  part.members = std::move(members);
  part.names = std::move(names);
  return part;
}

PlanBuilder::PlanBuilder(std::string family, std::string class_name, Config config,
                         std::vector<std::pair<std::string, std::string>> standard_prefixes)
    : standard_prefixes_(std::move(standard_prefixes)) {
  plan_.family = std::move(family);
  plan_.class_name = std::move(class_name);
  plan_.warnings = config.warnings;
  plan_.text_config = config;
  plan_.config = std::move(config);
  Module root;
  root.class_name = plan_.class_name;
  plan_.modules.push_back(root);
  open_.push_back(0);
  plan_.input_ids = new_slot();
  plan_.attention_mask = new_slot();
  plan_.position_ids = new_slot();
}

Slot PlanBuilder::input_ids() {
  return plan_.input_ids;
}
Slot PlanBuilder::attention_mask() {
  return plan_.attention_mask;
}
Slot PlanBuilder::position_ids() {
  return plan_.position_ids;
}

// ------------------------------------------------------------------------------------------------------------- modules

PlanBuilder::Scope PlanBuilder::module(const std::string& name, const std::string& class_name,
                                       std::vector<std::string> children) {
  auto id = static_cast<ModuleId>(plan_.modules.size());
  Module module;
  module.path = open().path.empty() ? name : open().path + "." + name;
  module.name = name;
  module.standard = standard(module.path);
  module.class_name = class_name;
  module.no_ports = not_run_;
  module.runs = not_run_.empty();
  module.parent = open_.back();
  module.first = here();
  open().children.push_back(id);
  plan_.modules.push_back(std::move(module));
  child_order_[id] = std::move(children);
  open_.push_back(id);
  return Scope(*this, id);
}

void PlanBuilder::close(ModuleId id) {
  check(open_.back() == id, "modules are closed in the order in which they were opened");
  Module& module = open();
  module.end = here();
  // Arguments are bound when the module's extent is known: an assignment reaches the consumers inside it.
  for (ArgumentSpec& argument : arguments_[id]) {
    size_t index = module.arguments.size();
    std::string name =
        standard(module.path) + ".inputs." + (argument.keyword.empty() ? std::to_string(index) : argument.keyword);
    module.arguments.push_back({argument.keyword, add_part(argument.part, name, called_at_[id], &module)});
  }
  if (!module.arguments.empty() && module.arguments[0].part.row >= 0) {
    RowId first = module.arguments[0].part.row;
    plan_.row_index[standard(module.path) + ".input"] = first;
    plan_.row_index[module.path + ".input"] = first;
    plan_.rows[static_cast<size_t>(first)].name = standard(module.path) + ".input";
  }
  const auto& order = child_order_[id];
  auto rank = [&](ModuleId child) {
    return std::find(order.begin(), order.end(), plan_.module(child).name) - order.begin();
  };
  std::stable_sort(module.children.begin(), module.children.end(),
                   [&](ModuleId a, ModuleId b) { return rank(a) < rank(b); });
  open_.pop_back();
}

void PlanBuilder::Scope::summary(std::string text) {
  builder_.plan_.modules[static_cast<size_t>(id_)].summary = std::move(text);
}

void PlanBuilder::Scope::shows(const std::vector<std::pair<std::string, std::string>>& children) {
  Plan& plan = builder_.plan_;
  Module& module = plan.modules[static_cast<size_t>(id_)];
  for (const auto& [name, path] : children) {
    const std::string full = module.path + "." + path;
    auto found =
        std::find_if(plan.modules.begin(), plan.modules.end(), [&](const Module& m) { return m.path == full; });
    check(found != plan.modules.end(), "what print() shows exists: " + full);
    module.shown.emplace_back(name, static_cast<ModuleId>(found - plan.modules.begin()));
  }
}

PlanBuilder::Scope::~Scope() {
  builder_.close(id_);
}

void PlanBuilder::Scope::arguments(std::vector<ArgumentSpec> arguments) {
  builder_.arguments_[id_] = std::move(arguments);
  builder_.called_at_[id_] = builder_.here();
}

void PlanBuilder::Scope::returns(PartSpec result) {
  Module& module = builder_.plan_.modules[static_cast<size_t>(id_)];
  module.result = builder_.add_part(result, builder_.standard(module.path) + ".output", builder_.here(), nullptr);
}

void PlanBuilder::Scope::attribute(const std::string& name, json value) {
  builder_.plan_.modules[static_cast<size_t>(id_)].attributes[name] = std::move(value);
}

void PlanBuilder::Scope::no_ports(std::string why) {
  builder_.plan_.modules[static_cast<size_t>(id_)].no_ports = std::move(why);
}

Part PlanBuilder::add_part(const PartSpec& spec, const std::string& name, Position position,
                           const Module* argument_of) {
  Part part;
  part.is_tuple = spec.is_tuple;
  part.names = spec.names;
  for (size_t i = 0; i < spec.members.size(); ++i) {
    std::string member = name + "." + (spec.names.empty() ? std::to_string(i) : spec.names[i]);
    part.members.push_back(add_part(spec.members[i], member, position, argument_of));
  }
  if (!spec.leaf) return part;
  Row row;
  row.name = name;
  row.layer = layer_;
  row.value = *spec.leaf;
  if (row_ports_ && row.value.view.kind == View::Kind::Same) row.value.view.kind = View::Kind::Rows;
  row.position = position;
  row.is_argument = argument_of != nullptr;
  if (argument_of) {
    for (Position at = argument_of->first; at < argument_of->end; ++at) {
      const Step& step = plan_.steps[static_cast<size_t>(at)];
      for (size_t i = 0; i < step.inputs.size(); ++i)
        if (step.inputs[i].slot == row.value.slot) row.consumers.emplace_back(at, static_cast<int>(i));
    }
  }
  part.row = add_row(std::move(row));
  return part;
}

// --------------------------------------------------------------------------------------------------------------- words

WeightId PlanBuilder::weight(const std::string& suffix, std::vector<int64_t> shape, const std::string& gguf,
                             bool adds_one) {
  WeightSlot slot;
  slot.name = open().path + "." + suffix;
  slot.shape = std::move(shape);
  slot.gguf = gguf.empty() ? "" : gguf + "." + suffix;
  slot.gguf_adds_one = adds_one;
  auto id = static_cast<WeightId>(plan_.weights.size());
  weight_index_[slot.name] = id;
  plan_.weights.push_back(std::move(slot));
  open().weights.emplace_back(suffix, id);
  return id;
}

WeightId PlanBuilder::parameter(const std::string& name, std::vector<int64_t> shape, const std::string& gguf,
                                bool buffer) {
  WeightId id = weight(name, std::move(shape), "");
  plan_.weights.back().gguf = gguf;
  plan_.weights.back().buffer = buffer;
  return id;
}

std::vector<Slot> PlanBuilder::steps(Op op, std::vector<Operand> inputs, size_t outputs) {
  std::vector<Slot> out(outputs);
  for (Slot& slot : out) slot = new_slot();
  plan_.steps.push_back({std::move(op), std::move(inputs), out, {}, open_.back(), {}});
  return out;
}

Slot PlanBuilder::step(Op op, std::vector<Operand> inputs, std::vector<WeightId> weights) {
  Slot out = steps(std::move(op), std::move(inputs), 1)[0];
  plan_.steps.back().weights = std::move(weights);
  return out;
}

std::pair<Slot, Slot> PlanBuilder::step2(Op op, std::vector<Operand> inputs, std::vector<WeightId> weights) {
  std::vector<Slot> out = steps(std::move(op), std::move(inputs), 2);
  plan_.steps.back().weights = std::move(weights);
  return {out[0], out[1]};
}

// --------------------------------------------------------------------------------------------------------------- names

std::optional<std::string> renamed(const std::string& name, const std::string& from, const std::string& to) {
  if (!name.starts_with(from)) return std::nullopt;
  const bool whole = from.empty() || from.back() == '.' || name.size() == from.size() || name[from.size()] == '.';
  return whole ? std::optional(to + name.substr(from.size())) : std::nullopt;
}

std::string PlanBuilder::standard(const std::string& native) const {
  for (const auto& [from, to] : standard_prefixes_)
    if (auto name = renamed(native, from, to)) return *name;
  return native;
}

std::string PlanBuilder::host_prefix(const ValueSpec& spec) const {
  std::string layer = "layers." + std::to_string(is_vision(spec.host) ? vision_layer_ : layer_) + ".";
  switch (spec.host) {
    case Host::Model:
      return "";
    case Host::Layer:
      return layer;
    case Host::Attention:
      return layer + "self_attn.";
    case Host::Mlp:
      return layer + "mlp.";
    case Host::Vision:
      return "vision.";
    case Host::VisionLayer:
      return "vision." + layer;
    case Host::VisionAttention:
      return "vision." + layer + "self_attn.";
    case Host::VisionMlp:
      return "vision." + layer + "mlp.";
  }
  return "";
}

std::vector<int64_t> PlanBuilder::sizes_of(const ValueSpec& spec) const {
  const Sizes& s = is_vision(spec.host) ? plan_.vision.value().sizes
                   : layer_ < 0         ? plan_.sizes
                                        : plan_.layer_sizes.at(static_cast<size_t>(layer_));
  std::vector<int64_t> sizes;
  for (Axis axis : spec.axes) {
    switch (axis) {
      case Axis::hidden_size:
        sizes.push_back(s.hidden_size);
        break;
      case Axis::num_heads:
        sizes.push_back(s.num_heads);
        break;
      case Axis::num_kv_heads:
        sizes.push_back(s.num_kv_heads);
        break;
      case Axis::head_dim:
        sizes.push_back(s.head_dim);
        break;
      case Axis::qk_head_dim:
        sizes.push_back(s.qk_head_dim);
        break;
      case Axis::intermediate_size:
        sizes.push_back(s.intermediate_size);
        break;
      case Axis::vocab_size:
        sizes.push_back(s.vocab_size);
        break;
      case Axis::num_experts:
        sizes.push_back(s.num_experts);
        break;
      case Axis::top_k:
        sizes.push_back(s.top_k);
        break;
      case Axis::vision_hidden_size:
        sizes.push_back(s.vision_hidden_size);
        break;
      default:
        sizes.push_back(-1);
    }
  }
  return sizes;
}

RowId PlanBuilder::add_row(Row row) {
  auto id = static_cast<RowId>(plan_.rows.size());
  check(!plan_.row_index.contains(row.name), "a value is named once: " + row.name);
  row.read_at = read_at(row.value);
  plan_.row_index[row.name] = id;
  plan_.rows.push_back(std::move(row));
  return id;
}

void PlanBuilder::value(const ValueSpec& spec, Operand operand, const std::string& meaning) {
  Row row;
  row.name = host_prefix(spec) + std::string(spec.name);
  row.spec = &spec;
  row.meaning = meaning.empty() ? std::string(spec.meaning) : meaning;
  row.layer = layer_;
  row.value = operand;
  row.sizes = sizes_of(spec);
  row.position = here();
  add_row(std::move(row));
}

void PlanBuilder::absent(const ValueSpec& spec, const std::string& reason) {
  std::string name = host_prefix(spec) + std::string(spec.name);
  plan_.absence_index[name] = plan_.absences.size();
  plan_.absences.push_back({&spec, layer_, name, reason});
  if (layer_ >= 0 || spec.host == Host::Model) plan_.absences.back().sizes = sizes_of(spec);
}

void PlanBuilder::not_in_this_run(const ValueSpec& spec, const std::string& meaning) {
  absent(spec, "it needs an image, and the prompt brings none");
  Absence& absence = plan_.absences.back();
  absence.layer = vision_layer_;
  absence.of_run = true;
  absence.sizes = sizes_of(spec);
  if (!meaning.empty()) absence.meaning = meaning;
}

std::string with_ending(const ValueSpec& spec, const std::string& ending) {
  return std::string(spec.meaning) + ending;
}

void PlanBuilder::begin_layer(int index, const Sizes& sizes, const std::string& kind) {
  layer_ = index;
  plan_.layer_sizes.push_back(sizes);
  plan_.layer_kinds.push_back(kind);
}

void PlanBuilder::end_layer() {
  layer_ = -1;
}

std::string PlanBuilder::read_at(const Operand& operand) const {
  for (auto at = plan_.steps.rbegin(); at != plan_.steps.rend(); ++at) {
    if (std::find(at->outputs.begin(), at->outputs.end(), operand.slot) == at->outputs.end()) continue;
    const Module& module = plan_.module(at->module);
    bool own_module =
        module.result && module.children.empty() && module.end - module.first <= 1 && !module.path.empty();
    return own_module || module.children.empty() ? "the output of " + standard(module.path)
                                                 : "after " + op_name(at->op);
  }
  return "the run's input";
}

}  // namespace v0
}  // namespace gemloupe
