// Gemma 4's config out of a GGUF's metadata and into it, as llama.cpp's converter (conversion/gemma.py) writes it:
// key_length is the full blocks' and key_length_swa the sliding ones', sizes that differ between blocks are arrays, the
// share of a full head's dimensions that turn stands in the tensor rope_freqs, and values made of keys show in a
// missing attn_v.
#include <algorithm>

#include "gemloupe/family/gemma4.h"
#include "gemloupe/family/text_gguf.h"
#include "gemloupe/store/dequantize.h"

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr const char* kPrefix = "gemma4.";

constexpr auto kReal = GgufKey::Kind::Real;

const GgufForm kGguf{"gemma4_text",
                     "gemma4",
                     "Gemma4ForCausalLM",
                     {{"attention.sliding_window", "sliding_window"},
                      {"attention.shared_kv_layers", "num_kv_shared_layers"},
                      {"attention.key_length", "global_head_dim"},
                      {"attention.key_length_swa", "head_dim"},
                      {"rope.freq_base_swa", "rope_theta_of_sliding", kReal},
                      {"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
                      {"final_logit_softcapping", "final_logit_softcapping", kReal},
                      {"expert_count", "num_experts"},
                      {"expert_used_count", "top_k_experts"},
                      {"expert_feed_forward_length", "moe_intermediate_size"}}};

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
json rope_parameters(const Checkpoint& checkpoint, const json& c) {
  json rope;
  rope[kSliding] = {{"rope_type", "default"}, {"rope_theta", c.value("rope_theta_of_sliding", json(1e4))}};
  rope[kFull] = {
      {"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", c.value("rope_theta", json(1e6))}};
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

/// The block's own sizes as one number, or an array where they differ.
void write_sizes(json& metadata, const std::string& key, const json& by_block) {
  const bool differ = std::any_of(by_block.begin(), by_block.end(), [&](const json& x) { return x != by_block[0]; });
  metadata[kPrefix + key] = differ ? by_block : by_block[0];
}

/// How many of the full blocks' pairs of dimensions turn, in rope_freqs and in the config that it means.
void write_rope_freqs(GgufModel& out, const json& full, int64_t head_dim) {
  const RotaryFrequencies f = frequencies_of(full, head_dim);
  const int64_t pairs = head_dim / 2, turning = f.turning.value_or(pairs);
  out.rope_freqs.assign(static_cast<size_t>(pairs), 1e30f);
  std::fill_n(out.rope_freqs.begin(), turning, 1.0f);
  json& meant = out.meant["rope_parameters"][kFull];
  if (turning > 0 && meant.contains("partial_rotary_factor"))
    meant["partial_rotary_factor"] = static_cast<double>(turning) / static_cast<double>(pairs);
}

/// Parts that this model does not have make no difference.
void erase_parts_that_are_not_there(json& meant, bool keys_are_values, bool some_borrow) {
  const auto erase = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys) meant.erase(key);
  };
  if (meant.value("use_bidirectional_attention", json()) != "all") erase({"use_bidirectional_attention"});
  if (meant.value("hidden_size_per_layer_input", json(0)) == 0) erase({"vocab_size_per_layer_input"});
  if (meant.value("enable_moe_block", json(false)) != true)
    erase({"num_experts", "top_k_experts", "moe_intermediate_size"});
  if (!keys_are_values) erase({"attention_k_eq_v"});
  if (!some_borrow) erase({"use_double_wide_mlp"});
}

}  // namespace

json gemma4_config_from_gguf(const Checkpoint& checkpoint) {
  const json& g = checkpoint.gguf_metadata();
  json c = text_config_from_gguf(checkpoint, kGguf);
  read_blocks(g, c);
  c["rope_parameters"] = rope_parameters(checkpoint, c);
  for (const char* stood_in : {"rope_theta", "rope_scaling", "rope_theta_of_sliding"}) c.erase(stood_in);
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

GgufModel gemma4_gguf_of_config(const Config& c) {
  const json& rope = c.attributes()["rope_parameters"];
  int64_t full_width = c.integer("head_dim");
  json heads = json::array(), inner = json::array(), slides = json::array();
  bool keys_are_values = false, some_borrow = false;
  for (int layer = 0; layer < c.integer("num_hidden_layers"); ++layer) {
    const Gemma4Block block = gemma4_block(c, layer);
    heads.push_back(block.kv_heads);
    inner.push_back(block.inner);
    slides.push_back(block.kind == kSliding);
    if (block.kind == kFull) full_width = block.head_dim;
    keys_are_values |= block.keys_are_values && !block.borrows;
    some_borrow |= block.borrows;
  }
  json more = {{"global_head_dim", full_width}};
  if (rope.contains(kSliding)) more["rope_theta_of_sliding"] = rope[kSliding]["rope_theta"];
  if (c.attributes().value("enable_moe_block", json(false)) != true)
    for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) more[key] = nullptr;
  GgufModel out = text_config_to_gguf(c, kGguf, rope[kFull], more);
  json& g = out.metadata;
  write_sizes(g, "attention.head_count_kv", heads);
  write_sizes(g, "feed_forward_length", inner);
  g[std::string(kPrefix) + "attention.value_length_swa"] = c.integer("head_dim");
  g[std::string(kPrefix) + "attention.sliding_window_pattern"] = slides;
  g[std::string(kPrefix) + "rope.dimension_count"] = full_width;
  g[std::string(kPrefix) + "rope.dimension_count_swa"] = c.integer("head_dim");
  g[std::string(kPrefix) + "embedding_length_per_layer_input"] =
      c.attributes().value("hidden_size_per_layer_input", json(0));
  out.tokenizer = "gemma4";
  write_rope_freqs(out, rope[kFull], full_width);
  erase_parts_that_are_not_there(out.meant, keys_are_values, some_borrow);
  return out;
}

}  // namespace v0
}  // namespace gemloupe
