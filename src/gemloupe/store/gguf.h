// The GGUF format, versions 2 and 3, little-endian: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "gemloupe/store/checkpoint.h"
#include "gemloupe/store/mapped_file.h"

namespace gemloupe {
inline namespace v0 {

struct GgufFile {
  json metadata = json::object();  ///< all key-value pairs but for the vocabulary's arrays
  std::optional<GgufVocabulary> vocabulary;
  std::vector<StoredTensor> tensors;  ///< by name
};

/// Errors: NotFound, BadCheckpoint.
GgufFile read_gguf(const std::filesystem::path& path);
GgufFile parse_gguf(const std::shared_ptr<MappedFile>& file);

}  // namespace v0
}  // namespace gemloupe
