// Gemma 1 (GemmaForCausalLM): Llama's pre-norm block, x + f(norm(x)) twice, with a GeGLU MLP; post_attention_layernorm
// is the norm before the MLP.
//
// Order of operations: transformers 5.24.0, models/gemma/modeling_gemma.py.
#include <cmath>

#include "gemloupe/family/text.h"
#include "gemloupe/family/text_gguf.h"

namespace gemloupe {
inline namespace v0 {
namespace {

const ConfigSchema& schema() {
  static const ConfigSchema schema = [] {
    ConfigSchema s{"gemma", text_keys(256000, 3072, 24576, 28, 16, 16, 8192), {"rope_theta", "rope_scaling"}};
    s.keys.push_back({"hidden_act", KeyType::Text, "gelu_pytorch_tanh"});
    s.keys.push_back({"use_bidirectional_attention", KeyType::Flag, nullptr, true});
    s.unread = {"hidden_activation"};  // of Gemma 1.1
    return s;
  }();
  return schema;
}

Config read(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  Config c = read_config(schema(), raw, where, ignore);
  json& a = c.attributes();
  if (a["hidden_act"] == "gelu") a["hidden_act"] = "gelu_pytorch_tanh";  // a legacy value, meant as the tanh form
  a["rope_parameters"] = single_rope_parameters(raw, 1e4, where);
  check_text_config(c, "hidden_act", where);
  return c;
}

const GgufForm kGguf{"gemma", "gemma", "GemmaForCausalLM", {}};

json config_from_gguf(const Checkpoint& checkpoint) {
  return text_config_from_gguf(checkpoint, kGguf);
}

GgufModel gguf_of_config(const Config& c) {
  GgufModel out = text_config_to_gguf(c, kGguf, c.attributes()["rope_parameters"]);
  out.meant.erase("use_bidirectional_attention");  // of PaliGemma's prompts with an image
  return out;
}

const std::vector<std::string> kKeywords{"attention_mask", "position_ids", "position_embeddings"};

Slot attention(PlanBuilder& b, const TextShape& s, int layer, Slot a, const BlockKind& kind) {
  auto scope = b.module("self_attn", "GemmaAttention", {"q_proj", "k_proj", "v_proj", "o_proj"});
  scope.arguments(called_with(b, kind, {"hidden_states", a}, kKeywords));
  const double scale = std::pow(static_cast<double>(s.head_dim), -0.5);
  attention_attributes(scope, s, layer, scale);
  const View heads{View::Kind::HeadsFirst, s.head_dim};
  Heads h = project_heads(b, s, layer, a);
  PartSpec result =
      attend(b, s, layer, kind, {h.queries, heads}, {h.keys, heads}, {h.values, heads}, scale, std::nullopt);
  scope.returns(result);
  return result.members[0].leaf->slot;
}

Slot block(PlanBuilder& b, const TextShape& s, int layer, Slot x, const BlockKind& kind) {
  auto scope = b.module(std::to_string(layer), "GemmaDecoderLayer",
                        {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"});
  scope.arguments(called_with(b, kind, {"", x}, kKeywords));
  const std::string gguf = "blk." + std::to_string(layer) + ".";
  b.value(values::layer_input, {x, {}});
  Slot a = b.norm("input_layernorm", {x, {}}, s.hidden, s.norm, gguf + "attn_norm");
  b.value(values::attention_norm_output, {a, {}});
  a = attention(b, s, layer, a, kind);
  b.value(values::attention_output, {a, {}});
  Slot mid = b.step(op::Add{}, {{x, {}}, {a, {}}});
  b.value(values::layer_mid, {mid, {}});
  Slot m = b.norm("post_attention_layernorm", {mid, {}}, s.hidden, s.norm, gguf + "ffn_norm");
  b.value(values::mlp_norm_output, {m, {}});
  b.value(values::mlp_input, {m, {}});
  m = gated_mlp(b, s, layer, m);
  b.value(values::mlp_output, {m, {}});
  Slot out = b.step(op::Add{}, {{mid, {}}, {m, {}}});
  b.value(values::layer_output, {out, {}});
  scope.returns(out);
  return out;
}

Slot text_model(PlanBuilder& b, const TextPlace& place, const RecipeOptions&) {
  const TextShape s = text_shape(b.config(), "Gemma");
  b.plan().sizes = sizes_of(s);
  auto scope = b.module(place.module, "GemmaModel", {"embed_tokens", "layers", "norm", "rotary_emb"});
  Slot stream = scaled_embedding(b, s, scope, place);
  BlockKind kind = single_kind(b, s, "GemmaRotaryEmbedding", stream);
  std::vector<std::string> kinds(static_cast<size_t>(b.config().integer("num_hidden_layers")), kFull);
  stream = stack(b, kinds, stream, [&](int layer, Slot x) { return block(b, s, layer, x, kind); });
  stream = final_norm(b, s, stream);
  scope.returns(PartSpec::tuple({stream}, {"last_hidden_state"}));
  return stream;
}

void about(PlanBuilder& b) {
  b.plan().identity = "layers[i].input + self_attn.attention_output + mlp.mlp_output == layer_output";
  b.note("post_attention_layernorm is the MLP's input norm",
         "There is no norm after a sublayer. Gemma 2, 3 and 4 give this name to the norm after the attention.");
  b.note("The contributions are the modules' outputs",
         "attention_output is self_attn.output[0] and mlp_output is mlp.output: scaling the one scales the other.");
  b.note("The norm gain is 1 + weight", "Fold a norm with 1 + model.norm._module.weight, in float32.");
}

}  // namespace

extern const Family gemma_family;
const Family gemma_family{
    "gemma",
    "GemmaForCausalLM",
    "gemma",
    read,
    [](const Config& config, const RecipeOptions& options) { return text_plan(gemma_family, config, options); },
    config_from_gguf,
    gguf_of_config,
    text_model,
    about};

}  // namespace v0
}  // namespace gemloupe
