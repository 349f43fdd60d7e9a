// Configs of Gemma 3, as files have them, and what the family makes of them.
#pragma once

#include "gemloupe/family/family.h"

namespace family_tests {

using namespace gemloupe;

/// google/gemma-3-270m's config.json, but for what follows from the defaults.
inline json config_270m() {
  json kinds = json::array();
  for (int i = 0; i < 18; ++i) kinds.push_back(i % 6 == 5 ? "full_attention" : "sliding_attention");
  return {{"architectures", {"Gemma3ForCausalLM"}},
          {"_sliding_window_pattern", 6},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"attn_logit_softcapping", nullptr},
          {"bos_token_id", 2},
          {"eos_token_id", 1},
          {"final_logit_softcapping", nullptr},
          {"head_dim", 256},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"hidden_size", 640},
          {"initializer_range", 0.02},
          {"intermediate_size", 2048},
          {"layer_types", kinds},
          {"max_position_embeddings", 32768},
          {"model_type", "gemma3_text"},
          {"num_attention_heads", 4},
          {"num_hidden_layers", 18},
          {"num_key_value_heads", 1},
          {"pad_token_id", 0},
          {"query_pre_attn_scalar", 256},
          {"rms_norm_eps", 1e-06},
          {"rope_local_base_freq", 10000.0},
          {"rope_scaling", nullptr},
          {"rope_theta", 1000000.0},
          {"sliding_window", 512},
          {"torch_dtype", "bfloat16"},
          {"transformers_version", "4.55.0.dev0"},
          {"use_bidirectional_attention", false},
          {"use_cache", true},
          {"vocab_size", 262144}};
}

/// google/gemma-3-1b-pt's config.json.
inline json config_1b() {
  return {{"architectures", {"Gemma3ForCausalLM"}},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"attn_logit_softcapping", nullptr},
          {"bos_token_id", 2},
          {"cache_implementation", "hybrid"},
          {"eos_token_id", {1, 106}},
          {"final_logit_softcapping", nullptr},
          {"head_dim", 256},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"hidden_size", 1152},
          {"initializer_range", 0.02},
          {"intermediate_size", 6912},
          {"max_position_embeddings", 32768},
          {"model_type", "gemma3_text"},
          {"num_attention_heads", 4},
          {"num_hidden_layers", 26},
          {"num_key_value_heads", 1},
          {"pad_token_id", 0},
          {"query_pre_attn_scalar", 256},
          {"rms_norm_eps", 1e-06},
          {"rope_local_base_freq", 10000},
          {"rope_scaling", nullptr},
          {"rope_theta", 1000000},
          {"sliding_window", 512},
          {"sliding_window_pattern", 6},
          {"torch_dtype", "bfloat16"},
          {"transformers_version", "4.50.0.dev0"},
          {"use_cache", true},
          {"vocab_size", 262144}};
}

/// Small, and every size another.
inline json small_config(const json& changes = json::object()) {
  json config{{"model_type", "gemma3_text"}, {"vocab_size", 50},       {"hidden_size", 24},
              {"intermediate_size", 40},     {"num_hidden_layers", 7}, {"num_attention_heads", 4},
              {"num_key_value_heads", 2},    {"head_dim", 6},          {"query_pre_attn_scalar", 6},
              {"sliding_window", 5}};
  config.update(changes);
  return config;
}

inline const Family& gemma3() {
  return find_family("gemma3_text", "config.json");
}

inline Config read(const json& raw, const std::vector<std::string>& ignore = {}) {
  return gemma3().read_config(raw, "dir/config.json", ignore);
}

inline Plan plan_of(const json& raw, const RecipeOptions& options = {}) {
  return gemma3().recipe(read(raw), options);
}

}  // namespace family_tests
