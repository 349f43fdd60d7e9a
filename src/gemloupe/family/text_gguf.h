// What llama.cpp's converter writes for a text family, read and written by one table.
#pragma once

#include <string>
#include <vector>

#include "gemloupe/family/family.h"
#include "gemloupe/store/gguf.h"

namespace gemloupe {
inline namespace v0 {

/// A key behind "ARCHITECTURE." in a GGUF's metadata, and the key of config.json that it is.
struct GgufKey {
  const char* gguf;
  const char* config;
  enum class Kind : uint8_t { Count, Real } kind = Kind::Count;
};

/// A family as GGUF files have it.
struct GgufForm {
  std::string model_type, architecture, class_name;
  std::vector<GgufKey> keys;  ///< beside those that every Gemma text family has
};

/// The config in the keys of released files: `rope_theta` and `rope_scaling` stand for the one table of
/// `rope_parameters`, or for that of the full blocks.
json text_config_from_gguf(const Checkpoint& checkpoint, const GgufForm& form);

/// `table` is what `rope_theta` and `rope_scaling` stand for; `more` are values of keys that are no attributes.
GgufModel text_config_to_gguf(const Config& config, const GgufForm& form, const json& table,
                              const json& more = json::object());

/// Reads `file`, which says `model`, as it would be read, and refuses what a reader would take in another way than the
/// config has it. Errors: BadConfig.
void refuse_another_meaning(const GgufModel& model, const GgufFile& file, const std::string& where);

/// Puts the tokens that end a text beside the vocabulary's own into the file; returns how many found no place there.
size_t write_ends(std::vector<int64_t> ends, GgufFile& file);

/// GGUF has no query_pre_attn_scalar: llama.cpp takes hidden_size / heads on the 27B, which it knows by its number of
/// blocks, else the head's width.
void query_scalar_from_gguf(json& config, int64_t blocks_of_27b);

/// A number of a GGUF's metadata, a float32, as the shortest decimal that rounds to it: what the config said. Anything
/// else as it is.
json said_number(const json& value);

}  // namespace v0
}  // namespace gemloupe
