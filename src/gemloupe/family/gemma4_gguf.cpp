// Gemma 4's config out of a GGUF's metadata, as llama.cpp's converter (conversion/gemma.py) writes it: key_length is
// the full blocks' and key_length_swa the sliding ones', sizes that differ between blocks are arrays, the share of a
// full head's dimensions that turn stands in the tensor rope_freqs, and values made of keys show in a missing attn_v.
#include <algorithm>

#include "gemloupe/family/gemma4.h"
#include "gemloupe/store/dequantize.h"

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr const char* kPrefix = "gemma4.";

json found(const json& metadata, const std::string& key) {
  auto at = metadata.find(kPrefix + key);
  return at == metadata.end() ? json() : *at;
}

/// A size of each block, from one number or an array of them.
json of_block(const json& sizes, size_t block) {
  if (!sizes.is_array()) return sizes;
  return block < sizes.size() ? sizes[block] : json();
}

/// Kinds of blocks, and what the full ones have of their own.
void read_blocks(const json& g, json& c) {
  const json pattern = found(g, "attention.sliding_window_pattern");
  if (pattern.is_array()) {
    c["layer_types"] = json::array();
    for (const json& slides : pattern) c["layer_types"].push_back(slides == true || slides == 1 ? kSliding : kFull);
  }
  const json kinds = c.value("layer_types", json::array());
  const json kv_heads = found(g, "attention.head_count_kv"), inner = found(g, "feed_forward_length");
  if (inner.is_array() && !inner.empty()) {
    c["intermediate_size"] = inner[0];
    c["use_double_wide_mlp"] = inner.back() != inner[0];
  }
  if (!kv_heads.is_array()) return;
  for (size_t i = 0; i < kinds.size(); ++i)
    c[kinds[i] == kFull ? "num_global_key_value_heads" : "num_key_value_heads"] = of_block(kv_heads, i);
}

/// rope_freqs divides a frequency by 1 where it turns, by a number out of reach where it does not.
json rope_parameters(const Checkpoint& checkpoint, const json& g) {
  json rope;
  rope[kSliding] = {{"rope_type", "default"}, {"rope_theta", found(g, "rope.freq_base_swa")}};
  rope[kFull] = {
      {"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", found(g, "rope.freq_base")}};
  for (auto& [kind, table] : rope.items())
    if (table["rope_theta"].is_null()) table["rope_theta"] = kind == kFull ? 1e6 : 1e4;
  const StoredTensor* factors = checkpoint.find("rope_freqs.weight");
  if (!factors || factors->shape.size() != 1 || factors->shape[0] < 1 || factors->dtype != DType::F32) return rope;
  std::vector<float> values(static_cast<size_t>(factors->shape[0]));
  dequantize(*factors, values.data());
  const auto turning = std::count(values.begin(), values.end(), 1.0f);
  if (turning) rope[kFull]["partial_rotary_factor"] = static_cast<double>(turning) / static_cast<double>(values.size());
  return rope;
}

bool keys_are_values(const Checkpoint& checkpoint, const json& kinds) {
  for (size_t i = 0; i < kinds.size(); ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    if (kinds[i] == kFull && checkpoint.find(block + "attn_k.weight") && !checkpoint.find(block + "attn_v.weight"))
      return true;
  }
  return false;
}

}  // namespace

json gemma4_config_from_gguf(const Checkpoint& checkpoint) {
  const json& g = checkpoint.gguf_metadata();
  json c = text_config_from_gguf(checkpoint, "gemma4_text", "gemma4", "Gemma4ForCausalLM",
                                 {{"attention.sliding_window", "sliding_window"},
                                  {"attention.shared_kv_layers", "num_kv_shared_layers"},
                                  {"attention.key_length", "global_head_dim"},
                                  {"attention.key_length_swa", "head_dim"},
                                  {"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
                                  {"final_logit_softcapping", "final_logit_softcapping"},
                                  {"expert_count", "num_experts"},
                                  {"expert_used_count", "top_k_experts"},
                                  {"expert_feed_forward_length", "moe_intermediate_size"}});
  for (const char* legacy : {"rope_theta", "rope_scaling"}) c.erase(legacy);
  read_blocks(g, c);
  c["rope_parameters"] = rope_parameters(checkpoint, g);
  c["attention_k_eq_v"] = keys_are_values(checkpoint, c.value("layer_types", json::array()));
  // A dense model's converter may write counts of 0.
  c["enable_moe_block"] = checkpoint.find("blk.0.ffn_gate_inp.weight") != nullptr;
  if (c["enable_moe_block"] == false)
    for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) c.erase(key);
  if (!c.contains("hidden_size_per_layer_input")) c["hidden_size_per_layer_input"] = 0;
  if (const StoredTensor* table = checkpoint.find("per_layer_token_embd.weight"); table && table->shape.size() == 2)
    c["vocab_size_per_layer_input"] = table->shape[0];
  return c;
}

}  // namespace v0
}  // namespace gemloupe
