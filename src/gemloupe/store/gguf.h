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

/// The file, with the tensors of all its parts where it is one of several (name-00001-of-00003.gguf). Errors: NotFound,
/// BadCheckpoint.
GgufFile read_gguf(const std::filesystem::path& path);
GgufFile parse_gguf(const std::shared_ptr<MappedFile>& file);

/// Whether the name is that of a part other than the first.
bool is_later_gguf_split(const std::filesystem::path& path);

}  // namespace v0
}  // namespace gemloupe
