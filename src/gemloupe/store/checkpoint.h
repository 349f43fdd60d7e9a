// A checkpoint as it lies on disk: config JSON, lazily mapped named tensors, tokenizer files. Knows nothing of
// families.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gemloupe/base/dtype.h"

namespace gemloupe {
inline namespace v0 {

/// Config JSON keeps its key order: `print` and messages follow the file.
using json = nlohmann::ordered_json;

/// A tensor inside a mapped file. The map is private and copy-on-write: writing through `data` changes this process's
/// view of the weight, never the file. `file` keeps the map alive.
struct StoredTensor {
  std::string name;
  DType dtype{};
  std::vector<int64_t> shape;  ///< outermost first, also for GGUF
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::filesystem::path path;  ///< the file it lies in, for messages
  std::shared_ptr<const void> file;
};

/// The vocabulary that a GGUF file carries (tokenizer.ggml.*).
struct GgufVocabulary {
  std::string model;  ///< tokenizer.ggml.model: "llama" is SentencePiece's scores, "gemma4" and "gpt2" have merges
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;  ///< 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;
  std::optional<int64_t> bos, eos, unknown, padding;
  bool add_bos = true, add_eos = false, add_space_prefix = false;
};

/// What a tokenizer can be made from: the first of these that is present.
struct TokenizerFiles {
  std::optional<std::filesystem::path> tokenizer_json;
  std::optional<std::filesystem::path> tokenizer_model;
  std::optional<GgufVocabulary> gguf;
  json tokenizer_config;  ///< tokenizer_config.json, without added_tokens_decoder where tokenizer.json has it all
  std::optional<std::string> chat_template;  ///< chat_template.jinja, else tokenizer_config's, else the GGUF's
};

struct GgufFile;

class Checkpoint {
 public:
  /// A folder, a `.safetensors` or `.gguf` file, or a hub id such as "google/gemma-3-270m", looked up in the local hub
  /// cache only (HF_HUB_CACHE, HF_HOME, ~/.cache/huggingface/hub). Errors: NotFound (with where it looked),
  /// BadCheckpoint. A folder with a config.json and no weights opens with `Weights::Optional` only.
  enum class Weights { Required, Optional };
  static Checkpoint open(const std::string& path_or_id, const std::optional<std::string>& revision = std::nullopt,
                         Weights weights = Weights::Required);

  /// What a GGUF file at `path` would be that says this: its tensors need no data, and there is no digest.
  static Checkpoint of_gguf(GgufFile contents, const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const json& config() const { return config_; }                        ///< config.json; null for GGUF
  const json& generation_config() const { return generation_config_; }  ///< null where absent
  const json& gguf_metadata() const {
    return gguf_metadata_;
  }  ///< a GGUF's key-value pairs but for the vocabulary; null otherwise
  bool is_gguf() const { return !gguf_metadata_.is_null(); }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  ///< null where absent
  const TokenizerFiles& tokenizer_files() const { return tokenizer_files_; }

  /// 32 hex digits that name the model: config, tensor table and samples of every tensor, taken when it is opened, so
  /// that weights edited in place do not change it. Files we write carry it.
  const std::string& digest() const { return digest_; }

 private:
  friend class CheckpointReader;
  std::filesystem::path path_;
  json config_, generation_config_, gguf_metadata_;
  std::vector<StoredTensor> tensors_;  // sorted by name
  TokenizerFiles tokenizer_files_;
  std::string digest_;
};

}  // namespace v0
}  // namespace gemloupe
