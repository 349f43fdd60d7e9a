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
  module.class_name = class_name;
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

namespace {
std::string compact_number(double value) {
  std::string text = json(value).dump();
  // Python prints 1e-06 with two digits of exponent; json does too.
  return text;
}
}  // namespace

Slot PlanBuilder::norm(const std::string& name, Operand x, int64_t size, const NormStyle& style,
                       const std::string& gguf) {
  Scope scope = module(name, style.class_name);
  if (style.summary_has_shape) open().summary = "(" + std::to_string(size) + ",), eps=" + compact_number(style.eps);
  scope.attribute("eps", style.eps);
  Slot out = step(op::RmsNorm{style.eps, style.gain}, {x});
  if (style.gain != Gain::None)
    plan_.steps.back().weights.push_back(weight("weight", {size}, gguf, style.gain == Gain::OnePlusWeight));
  scope.arguments({{"", x}});
  scope.returns(out);
  return out;
}

Slot PlanBuilder::linear(const std::string& name, Operand x, int64_t in, int64_t out_features, bool bias,
                         const std::string& gguf) {
  Scope scope = module(name, "Linear");
  open().summary = "in_features=" + std::to_string(in) + ", out_features=" + std::to_string(out_features) +
                   ", bias=" + (bias ? "True" : "False");
  scope.attribute("in_features", in);
  scope.attribute("out_features", out_features);
  Slot out = step(op::Linear{}, {x});
  std::vector<WeightId> weights{weight("weight", {out_features, in}, gguf)};
  if (bias) weights.push_back(weight("bias", {out_features}, gguf));
  plan_.steps.back().weights = std::move(weights);
  scope.arguments({{"", x}});
  scope.returns(out);
  return out;
}

Slot PlanBuilder::tied_linear(const std::string& name, Operand x, int64_t in, int64_t out, const std::string& tied_to) {
  Slot result = linear(name, x, in, out, false, "");
  auto owner = weight_index_.find(tied_to);
  check(owner != weight_index_.end(), "a tied head names a weight that exists");
  plan_.weights.back().tied_to = owner->second;
  return result;
}

Slot PlanBuilder::embed(const std::string& name, const std::string& class_name, Slot ids, int64_t rows, int64_t width,
                        double scale, std::optional<int64_t> padding, const std::string& gguf) {
  Scope scope = module(name, class_name);
  open().summary = std::to_string(rows) + ", " + std::to_string(width);
  if (padding) open().summary += ", padding_idx=" + std::to_string(*padding);
  scope.attribute("num_embeddings", rows);
  scope.attribute("embedding_dim", width);
  scope.attribute("padding_idx", padding ? json(*padding) : json());
  scope.attribute("scalar_embed_scale", scale);
  Slot out = step(op::Embed{scale}, {Operand{ids, {}}});
  plan_.steps.back().weights.push_back(weight("weight", {rows, width}, gguf));
  scope.arguments({{"", ids}});
  scope.returns(out);
  return out;
}

Slot PlanBuilder::activation(const std::string& name, Slot x) {
  Scope scope = module(name, "GELUTanh");
  Slot out = step(op::GeluTanh{}, {Operand{x, {}}});
  scope.arguments({{"", x}});
  scope.returns(out);
  return out;
}

Slot PlanBuilder::attention(Operand queries, Slot keys, Slot values_, Slot mask, double scale,
                            std::optional<double> softcap, const MaskRule& rule) {
  Operand k{keys, {}}, v{values_, {}}, m{mask, {}};
  value(values::attention_queries, queries);
  value(values::attention_keys, k);
  value(values::attention_values, v);
  Position first = here();
  Slot scores = step(op::Scores{scale, softcap, rule}, {queries, k, m});
  value(values::attention_scores, {scores, {}});
  Slot pattern = step(op::Softmax{}, {Operand{scores, {}}});
  value(values::attention_probabilities, {pattern, {}});
  Slot mixed = step(op::Mix{}, {Operand{pattern, {}}, v});
  // A softcap between scores and softmax leaves no fused kernel that is faithful.
  if (!softcap) plan_.fusions.push_back({first, here(), op::FusedAttention{scale, rule}, {queries, k, v, m}, {mixed}});
  value(values::attention_head_outputs, {mixed, {}});
  value(values::attention_premix, {mixed, {}});
  return mixed;
}

// --------------------------------------------------------------------------------------------------------------- names

std::string PlanBuilder::standard(const std::string& native) const {
  for (const auto& [from, to] : standard_prefixes_)
    if (native.starts_with(from)) return to + native.substr(from.size());
  return native;
}

std::string PlanBuilder::host_prefix(const ValueSpec& spec) const {
  std::string layer = "layers." + std::to_string(layer_) + ".";
  switch (spec.host) {
    case Host::Model:
      return "";
    case Host::Layer:
      return layer;
    case Host::Attention:
      return layer + "self_attn.";
    case Host::Mlp:
      return layer + "mlp.";
  }
  return "";
}

std::vector<int64_t> PlanBuilder::sizes_of(const ValueSpec& spec) const {
  const Sizes& s = layer_ < 0 ? plan_.sizes : plan_.layer_sizes.back();
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
  plan_.absences.push_back({&spec, layer_, name, reason});
  plan_.absence_index[name] = reason;
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
