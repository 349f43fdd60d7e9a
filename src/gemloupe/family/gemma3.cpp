// Gemma 3, text (Gemma3ForCausalLM): a sandwich block, x + post_norm(f(norm(x))) twice, with normed queries and keys,
// five sliding-window blocks before each full one, and a rotary table for each kind.
//
// Order of operations: transformers 5.24.0, models/gemma3/modeling_gemma3.py.
#include <cmath>
#include <map>
#include <tuple>

#include "gemloupe/base/errors.h"
#include "gemloupe/family/text.h"
#include "gemloupe/family/text_gguf.h"

namespace gemloupe {
inline namespace v0 {
namespace {

// ------------------------------------------------------------------------------------------------------------- config

const ConfigSchema& schema() {
  static const ConfigSchema schema = [] {
    ConfigSchema s{"gemma3_text",
                   text_keys(262208, 2304, 9216, 26, 8, 4, 131072),
                   {"rope_theta", "rope_local_base_freq", "rope_scaling", "sliding_window_pattern"}};
    s.keys.push_back({"hidden_activation", KeyType::Text, "gelu_pytorch_tanh"});
    s.keys.push_back({"query_pre_attn_scalar", KeyType::Number, 256});
    s.keys.push_back({"sliding_window", KeyType::Size, 4096, true});
    s.keys.push_back({"layer_types", KeyType::Texts, nullptr, true});
    s.keys.push_back({"final_logit_softcapping", KeyType::Number, nullptr, true});
    s.keys.push_back({"attn_logit_softcapping", KeyType::Number, nullptr, true});
    s.keys.push_back({"use_bidirectional_attention", KeyType::Flag, false, true});
    return s;
  }();
  return schema;
}

/// `rope_parameters` in the reference's form, from it or from the keys of released files.
json rope_parameters(const json& raw, const std::string& where) {
  json rope =
      raw.contains("rope_parameters") && raw["rope_parameters"].is_object() ? raw["rope_parameters"] : json::object();
  for (const char* kind : {kSliding, kFull})
    if (!rope.contains(kind) || rope[kind].is_null()) rope[kind] = json{{"rope_type", "default"}};
  if (raw.contains("rope_scaling") && raw["rope_scaling"].is_object() && rope[kFull].is_object())
    rope[kFull].update(raw["rope_scaling"]);
  auto theta = [&](const char* legacy, double standard) { return raw.contains(legacy) ? raw[legacy] : json(standard); };
  complete_rope_table(rope[kFull], theta("rope_theta", 1e6), "rope_parameters['full_attention']", where);
  complete_rope_table(rope[kSliding], theta("rope_local_base_freq", 1e4), "rope_parameters['sliding_attention']",
                      where);
  return rope;
}

/// The kinds of the blocks where the file names none: every sixth, or every `sliding_window_pattern`-th, is full.
void fill_layer_types(const json& raw, Config& c, const std::string& where) {
  json& a = c.attributes();
  int64_t pattern = 6;
  if (raw.contains("sliding_window_pattern")) {
    if (!raw["sliding_window_pattern"].is_number_integer() || raw["sliding_window_pattern"].get<int64_t>() < 1)
      throw BadConfig(where + ": sliding_window_pattern must be an integer from 1.");
    a["sliding_window_pattern"] = pattern = raw["sliding_window_pattern"].get<int64_t>();
  }
  if (!a.contains("_sliding_window_pattern")) a["_sliding_window_pattern"] = pattern;
  if (!a["layer_types"].is_null()) return;
  a["layer_types"] = json::array();
  for (int64_t i = 0; i < c.integer("num_hidden_layers"); ++i)
    a["layer_types"].push_back((i + 1) % pattern ? kSliding : kFull);
}

Config read(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  Config c = read_config(schema(), raw, where, ignore);
  json& a = c.attributes();
  check_text_config(c, "hidden_activation", where);
  a["rope_parameters"] = rope_parameters(raw, where);
  fill_layer_types(raw, c, where);
  check_layer_types(c, where);
  // The reference's flash attention takes exclusive bounds.
  if (c.flag("use_bidirectional_attention") && !a["sliding_window"].is_null())
    a["sliding_window"] = a["sliding_window"].get<int64_t>() / 2 + 1;
  if (c.number("query_pre_attn_scalar") <= 0) throw BadConfig(where + ": query_pre_attn_scalar must be above 0.");
  return c;
}

const GgufForm kGguf{"gemma3_text",
                     "gemma3",
                     "Gemma3ForCausalLM",
                     {{"attention.sliding_window", "sliding_window"},
                      {"rope.freq_base_swa", "rope_local_base_freq", GgufKey::Kind::Real},
                      {"final_logit_softcapping", "final_logit_softcapping", GgufKey::Kind::Real}}};

json config_from_gguf(const Checkpoint& checkpoint) {
  json c = text_config_from_gguf(checkpoint, kGguf);
  query_scalar_from_gguf(c, 62);
  return c;
}

GgufModel gguf_of_config(const Config& c) {
  const json& rope = c.attributes()["rope_parameters"];
  GgufModel out = text_config_to_gguf(c, kGguf, rope[kFull], {{"rope_local_base_freq", rope[kSliding]["rope_theta"]}});
  // Gemma3Attention passes no softcap; the pattern is what layer_types were made of.
  for (const char* key : {"attn_logit_softcapping", "sliding_window_pattern", "_sliding_window_pattern"})
    out.meant.erase(key);
  return out;
}

// ------------------------------------------------------------------------------------------------------------- recipe

struct Recipe {
  PlanBuilder& b;
  TextShape s;

  BlockKind kind(const std::string& name, Slot stream) {
    const Config& c = b.config();
    BlockKind k;
    k.name = name;
    k.rule.bidirectional = c.flag("use_bidirectional_attention");
    if (name == kSliding) k.rule.window = c.optional_integer("sliding_window");
    k.mask = mask_step(b, k.rule, stream);
    RotaryFrequencies frequencies = frequencies_of(c.attributes()["rope_parameters"][name], s.head_dim);
    std::tie(k.cos, k.sin) = b.step2(op::Rotary{frequencies}, {{b.position_ids(), {}}, {stream, {}}});
    return k;
  }

  Slot attention(int layer, Slot a, const BlockKind& kind) {
    auto scope = b.module("self_attn", "Gemma3Attention", {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"});
    scope.arguments(
        called_with(b, kind, {"hidden_states", a}, {"position_embeddings", "attention_mask", "position_ids"}));
    const double scale = std::pow(b.config().number("query_pre_attn_scalar"), -0.5);
    attention_attributes(scope, s, layer, scale);
    scope.attribute("sliding_window", kind.rule.window ? json(*kind.rule.window) : json());
    scope.attribute("is_sliding", kind.name == kSliding);
    scope.attribute("layer_type", kind.name);
    const View heads{View::Kind::HeadsFirst, s.head_dim};
    const std::string gguf = "blk." + std::to_string(layer) + ".";
    Heads h = project_heads(b, s, layer, a);
    Slot q = b.norm("q_norm", {h.queries, heads}, s.head_dim, s.norm, gguf + "attn_q_norm");
    Slot k = b.norm("k_norm", {h.keys, heads}, s.head_dim, s.norm, gguf + "attn_k_norm");
    // Gemma3Attention passes no softcap, whatever attn_logit_softcapping says.
    PartSpec result = attend(b, s, layer, kind, {q, {}}, {k, {}}, {h.values, heads}, scale, std::nullopt);
    scope.returns(result);
    return result.members[0].leaf->slot;
  }

  Slot text_model(const TextPlace& place) {
    auto scope = b.module(place.module, "Gemma3TextModel", {"embed_tokens", "layers", "norm", "rotary_emb"});
    Slot stream = scaled_embedding(b, s, scope, place);
    auto kinds = b.config().texts("layer_types");
    std::map<std::string, BlockKind> shared;
    {
      auto rotary = b.module("rotary_emb", "Gemma3RotaryEmbedding");
      rotary.no_ports("it runs once per kind of block; its tables are layers[i].inputs' position_embeddings");
      for (const std::string& name : kinds)
        if (!shared.contains(name)) shared[name] = kind(name, stream);
    }
    stream = stack(b, kinds, stream, [&](int layer, Slot x) {
      const BlockKind& k = shared.at(kinds[static_cast<size_t>(layer)]);
      return sandwich_block(b, s, layer, x, k, [&](Slot a) { return attention(layer, a, k); });
    });
    stream = final_norm(b, s, stream);
    scope.returns(PartSpec::tuple({stream}, {"last_hidden_state"}));
    return stream;
  }
};

Slot text_model(PlanBuilder& b, const TextPlace& place, const RecipeOptions&) {
  Recipe r{b, text_shape(b.config(), "Gemma3")};
  b.plan().sizes = sizes_of(r.s);
  return r.text_model(place);
}

}  // namespace

extern const Family gemma3_family;
const Family gemma3_family{
    "gemma3_text",
    "Gemma3ForCausalLM",
    "gemma3",
    read,
    [](const Config& config, const RecipeOptions& options) { return text_plan(gemma3_family, config, options); },
    config_from_gguf,
    gguf_of_config,
    text_model,
    sandwich_notes};

}  // namespace v0
}  // namespace gemloupe
