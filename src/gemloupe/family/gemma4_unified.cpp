// Gemma 4 12B's text model (Gemma4UnifiedForCausalLM): Gemma 4's block without per-layer embeddings or experts.
//
// Order of operations: transformers 5.24.0, models/gemma4_unified/modeling_gemma4_unified.py.
#include "gemloupe/base/errors.h"
#include "gemloupe/family/gemma4.h"

namespace gemloupe {
inline namespace v0 {
namespace {

Config read(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  static const ConfigSchema schema = [] {
    ConfigSchema s{"gemma4_unified_text", gemma4_keys(262144, 1024), gemma4_legacy_keys()};
    for (ConfigKey& key : s.keys)
      if (key.name == "use_bidirectional_attention") key.standard = "vision";
    s.unread = {
        "vocab_size_per_layer_input", "hidden_size_per_layer_input", "enable_moe_block", "num_experts", "top_k_experts",
        "moe_intermediate_size"};
    return s;
  }();
  Config c = read_config(schema, raw, where, ignore);
  for (const char* key : {"hidden_size_per_layer_input", "enable_moe_block"})
    if (const json value = c.attributes().value(key, json()); !value.is_null() && value != 0 && value != false)
      throw BadConfig(where + ": " + key + " is " + value.dump() +
                      ", but gemma4_unified_text has no such part. Is this a gemma4_text checkpoint?");
  complete_gemma4_config(raw, c, where);
  return c;
}

Slot text_model(PlanBuilder& b, const TextPlace& place, const RecipeOptions&) {
  return gemma4_text_model(b, "Gemma4Unified", place);
}

}  // namespace

extern const Family gemma4_unified_family;
const Family gemma4_unified_family{"gemma4_unified_text",
                                   "Gemma4UnifiedForCausalLM",
                                   "",
                                   read,
                                   [](const Config& config, const RecipeOptions& options) {
                                     return text_plan(gemma4_unified_family, config, options);
                                   },
                                   nullptr,
                                   gemma4_gguf_of_config,
                                   text_model,
                                   about_gemma4};

}  // namespace v0
}  // namespace gemloupe
