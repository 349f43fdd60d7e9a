// The words of a recipe that are a module of their own: its step, its weights, its ports, what print() shows of it; and
// attention, which eager runs as three steps and the fused kernel as one.
#include "gemloupe/base/errors.h"
#include "gemloupe/plan/builder.h"

namespace gemloupe {
inline namespace v0 {

std::string linear_summary(int64_t in, int64_t out, bool bias) {
  return "in_features=" + std::to_string(in) + ", out_features=" + std::to_string(out) +
         ", bias=" + (bias ? "True" : "False");
}

Slot PlanBuilder::norm(const std::string& name, Operand x, int64_t size, const NormStyle& style,
                       const std::string& gguf) {
  Scope scope = module(name, style.class_name);
  if (style.summary_has_shape) open().summary = "(" + std::to_string(size) + ",), eps=" + json(style.eps).dump();
  scope.attribute("eps", style.eps);
  scope.arguments({{"", x}});
  Slot out = step(op::RmsNorm{style.eps, style.gain}, {x});
  if (style.gain != Gain::None)
    plan_.steps.back().weights.push_back(weight("weight", {size}, gguf, style.gain == Gain::OnePlusWeight));
  scope.returns(out);
  return out;
}

Slot PlanBuilder::linear(const std::string& name, Operand x, int64_t in, int64_t out_features, bool bias,
                         const std::string& gguf) {
  Scope scope = module(name, "Linear");
  open().summary = linear_summary(in, out_features, bias);
  scope.attribute("in_features", in);
  scope.attribute("out_features", out_features);
  scope.arguments({{"", x}});
  Slot out = step(op::Linear{}, {x});
  std::vector<WeightId> weights{weight("weight", {out_features, in}, gguf)};
  if (bias) weights.push_back(weight("bias", {out_features}, gguf));
  plan_.steps.back().weights = std::move(weights);
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
  scope.arguments({{"", ids}});
  Slot out = step(op::Embed{scale}, {Operand{ids, {}}});
  plan_.steps.back().weights.push_back(weight("weight", {rows, width}, gguf));
  scope.returns(out);
  return out;
}

Slot PlanBuilder::activation(const std::string& name, Slot x) {
  Scope scope = module(name, "GELUTanh");
  scope.arguments({{"", x}});
  Slot out = step(op::GeluTanh{}, {Operand{x, {}}});
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
  plan_.fusions.push_back({first, here(), op::FusedAttention{scale, softcap, rule}, {queries, k, v, m}, {}, {mixed}});
  value(values::attention_head_outputs, {mixed, {}});
  value(values::attention_premix, {mixed, {}});
  return mixed;
}

}  // namespace v0
}  // namespace gemloupe
