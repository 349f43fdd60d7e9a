// A family: the config keys it reads, and the recipe that writes its forward pass. One file each, found by `model_type`
// or by a GGUF's architecture.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gemloupe/plan/builder.h"

namespace gemloupe {
inline namespace v0 {

/// What a load option changes in a recipe.
struct RecipeOptions {
  std::string attn_implementation;  ///< "", "eager" or "sdpa"
  /// "default" is what the pages say, "config" what the config says, "none" no cap; else `final_logit_softcap` counts.
  std::string softcap_choice = "default";
  double final_logit_softcap = 0;
};

/// Where a text model stands: at the root's `model`, or inside a multimodal one.
struct TextPlace {
  std::string module = "model";
  bool inside = false;  ///< a multimodal model, which looks the embeddings up itself
  Slot ids = -1;        ///< what is looked up
};

/// What a GGUF file says of a config.
struct GgufModel {
  std::string architecture;
  json metadata = json::object();   ///< "gemma3.block_count", …
  std::vector<float> rope_freqs;    ///< the tensor rope_freqs.weight, where it has one
  std::string tokenizer = "llama";  ///< the kind of its vocabulary, tokenizer.ggml.model
  /// Of the config's attributes those that the forward pass depends on: what a reader of the file has to come to.
  json meant;
};

struct Family {
  std::string model_type;
  std::string class_name;         ///< the reference's model: "Gemma3ForCausalLM"
  std::string gguf_architecture;  ///< empty where GGUF has none
  /// Errors: BadConfig, naming `where`.
  Config (*read_config)(const json& raw, const std::string& where, const std::vector<std::string>& ignore);
  Plan (*recipe)(const Config& config, const RecipeOptions& options);
  /// The config that a GGUF's metadata amounts to, in the keys of config.json.
  json (*config_from_gguf)(const Checkpoint& checkpoint) = nullptr;
  /// The way back, for a config that has been read.
  GgufModel (*gguf_of_config)(const Config& config) = nullptr;
  /// Of a text family: writes the text model of b.config(), and returns the stream that the head reads.
  Slot (*text_model)(PlanBuilder& b, const TextPlace& place, const RecipeOptions& options) = nullptr;
  /// The notes, the identity, the spellings on disk.
  void (*about_text)(PlanBuilder& b) = nullptr;
};

std::span<const Family* const> families();

/// Errors: BadConfig with the model types that there are.
const Family& find_family(const std::string& model_type, const std::string& where);
const Family& find_gguf_family(const std::string& architecture, const std::string& where);

}  // namespace v0
}  // namespace gemloupe
