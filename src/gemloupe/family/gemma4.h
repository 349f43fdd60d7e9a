// What the two Gemma 4 text families share: gemma4_text, and gemma4_unified_text without per-layer embeddings or
// experts.
#pragma once

#include "gemloupe/family/text.h"

namespace gemloupe {
inline namespace v0 {

/// What a block has of its own.
struct Gemma4Block {
  std::string kind;  ///< kSliding or kFull
  int64_t head_dim = 0, kv_heads = 0, inner = 0;
  bool borrows = false;          ///< keys and values, of the last earlier block of its kind that has its own
  bool keys_are_values = false;  ///< no v_proj: values are made of k_proj's output
};
Gemma4Block gemma4_block(const Config& config, int layer);

/// The keys of both config classes; `positions` and `window` are the class defaults.
std::vector<ConfigKey> gemma4_keys(int64_t positions, int64_t window);

/// Fills in kinds, rotary tables and per-block sizes as the reference does, and refuses what contradicts itself.
void complete_gemma4_config(const json& raw, Config& config, const std::string& where);

/// Older keys that are read into `per_layer_config`.
std::vector<std::string> gemma4_legacy_keys();

/// What llama.cpp's converter writes for every Gemma 4 text model.
json gemma4_config_from_gguf(const Checkpoint& checkpoint);
GgufModel gemma4_gguf_of_config(const Config& config);

/// `prefix` is of the reference's class names: "Gemma4" or "Gemma4Unified".
Slot gemma4_text_model(PlanBuilder& b, const std::string& prefix, const TextPlace& place);

void about_gemma4(PlanBuilder& b);

}  // namespace v0
}  // namespace gemloupe
