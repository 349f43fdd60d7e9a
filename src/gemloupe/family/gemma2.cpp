// Gemma 2 (Gemma2ForCausalLM): a sandwich block, x + post_norm(f(norm(x))) twice, with softcapped scores and logits;
// sliding and full attention alternate.
//
// Order of operations: transformers 5.24.0, models/gemma2/modeling_gemma2.py.
#include <cmath>

#include "gemloupe/base/errors.h"
#include "gemloupe/family/text.h"
#include "gemloupe/family/text_gguf.h"

namespace gemloupe {
inline namespace v0 {
namespace {

const ConfigSchema& schema() {
  static const ConfigSchema schema = [] {
    ConfigSchema s{"gemma2", text_keys(256000, 2304, 9216, 26, 8, 4, 8192), {"rope_theta", "rope_scaling"}};
    s.keys.push_back({"hidden_activation", KeyType::Text, "gelu_pytorch_tanh"});
    s.keys.push_back({"query_pre_attn_scalar", KeyType::Number, 256});
    s.keys.push_back({"sliding_window", KeyType::Size, 4096, true});
    s.keys.push_back({"layer_types", KeyType::Texts, nullptr, true});
    s.keys.push_back({"final_logit_softcapping", KeyType::Number, 30.0, true});
    s.keys.push_back({"attn_logit_softcapping", KeyType::Number, 50.0, true});
    s.keys.push_back({"use_bidirectional_attention", KeyType::Flag, nullptr, true});
    s.unread = {"hidden_act", "sliding_window_size"};
    return s;
  }();
  return schema;
}

Config read(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  Config c = read_config(schema(), raw, where, ignore);
  json& a = c.attributes();
  check_text_config(c, "hidden_activation", where);
  a["rope_parameters"] = single_rope_parameters(raw, 1e4, where);
  if (a["layer_types"].is_null()) {
    a["layer_types"] = json::array();
    for (int64_t i = 0; i < c.integer("num_hidden_layers"); ++i) a["layer_types"].push_back(i % 2 ? kFull : kSliding);
  }
  check_layer_types(c, where);
  if (c.number("query_pre_attn_scalar") <= 0) throw BadConfig(where + ": query_pre_attn_scalar must be above 0.");
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"})
    if (auto value = c.optional_number(cap); value && *value <= 0)
      throw BadConfig(where + ": " + cap + " must be above 0, or null for no cap.");
  return c;
}

const GgufForm kGguf{"gemma2",
                     "gemma2",
                     "Gemma2ForCausalLM",
                     {{"attention.sliding_window", "sliding_window"},
                      {"attn_logit_softcapping", "attn_logit_softcapping", GgufKey::Kind::Real},
                      {"final_logit_softcapping", "final_logit_softcapping", GgufKey::Kind::Real}}};

json config_from_gguf(const Checkpoint& checkpoint) {
  json c = text_config_from_gguf(checkpoint, kGguf);
  query_scalar_from_gguf(c, 46);
  return c;
}

GgufModel gguf_of_config(const Config& c) {
  GgufModel out = text_config_to_gguf(c, kGguf, c.attributes()["rope_parameters"]);
  out.meant.erase("use_bidirectional_attention");  // of PaliGemma 2's prompts with an image
  return out;
}

struct Recipe {
  PlanBuilder& b;
  TextShape s;
  std::optional<double> score_cap;

  Slot attention(int layer, Slot a, const BlockKind& kind) {
    auto scope = b.module("self_attn", "Gemma2Attention", {"q_proj", "k_proj", "v_proj", "o_proj"});
    scope.arguments(
        called_with(b, kind, {"hidden_states", a}, {"position_embeddings", "attention_mask", "position_ids"}));
    const double scale = std::pow(b.config().number("query_pre_attn_scalar"), -0.5);
    attention_attributes(scope, s, layer, scale);
    scope.attribute("sliding_window", kind.rule.window ? json(*kind.rule.window) : json());
    scope.attribute("attn_logit_softcapping", score_cap ? json(*score_cap) : json());
    const View heads{View::Kind::HeadsFirst, s.head_dim};
    Heads h = project_heads(b, s, layer, a);
    PartSpec result =
        attend(b, s, layer, kind, {h.queries, heads}, {h.keys, heads}, {h.values, heads}, scale, score_cap);
    scope.returns(result);
    return result.members[0].leaf->slot;
  }

  Slot text_model(const TextPlace& place) {
    auto scope = b.module(place.module, "Gemma2Model", {"embed_tokens", "layers", "norm", "rotary_emb"});
    Slot stream = scaled_embedding(b, s, scope, place);
    BlockKind full = single_kind(b, s, "Gemma2RotaryEmbedding", stream);
    BlockKind sliding = full;
    sliding.name = kSliding;
    sliding.rule.window = b.config().optional_integer("sliding_window");
    sliding.mask = mask_step(b, sliding.rule, stream);
    stream = stack(b, b.config().texts("layer_types"), stream, [&](int layer, Slot x) {
      const BlockKind& kind = b.plan().layer_kinds.back() == kSliding ? sliding : full;
      return sandwich_block(b, s, layer, x, kind, [&](Slot a) { return attention(layer, a, kind); });
    });
    stream = final_norm(b, s, stream);
    scope.returns(PartSpec::tuple({stream}, {"last_hidden_state"}));
    return stream;
  }
};

Slot text_model(PlanBuilder& b, const TextPlace& place, const RecipeOptions& options) {
  // An explicit "sdpa" is the uncapped attention that the page describes; the default is capped under any kernel.
  std::optional<double> cap = b.config().optional_number("attn_logit_softcapping");
  if (options.attn_implementation == "sdpa") {
    cap.reset();
    b.plan().warnings.push_back(
        "attn_implementation=\"sdpa\" leaves out Gemma 2's score softcap: this is not the attention that the model was "
        "trained with. Load without attn_implementation, or with \"eager\".");
  }
  Recipe r{b, text_shape(b.config(), "Gemma2"), cap};
  b.plan().sizes = sizes_of(r.s);
  return r.text_model(place);
}

}  // namespace

extern const Family gemma2_family;
const Family gemma2_family{
    "gemma2",
    "Gemma2ForCausalLM",
    "gemma2",
    read,
    [](const Config& config, const RecipeOptions& options) { return text_plan(gemma2_family, config, options); },
    config_from_gguf,
    gguf_of_config,
    text_model,
    sandwich_notes};

}  // namespace v0
}  // namespace gemloupe
