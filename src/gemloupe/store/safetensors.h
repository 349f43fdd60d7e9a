// The safetensors format: https://github.com/huggingface/safetensors, as strict as its reference implementation.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gemloupe/store/array_to_write.h"
#include "gemloupe/store/checkpoint.h"
#include "gemloupe/store/mapped_file.h"

namespace gemloupe {
inline namespace v0 {

struct SafetensorsFile {
  std::vector<StoredTensor> tensors;            ///< by name
  std::map<std::string, std::string> metadata;  ///< `__metadata__`
};

/// Errors: NotFound, BadCheckpoint.
SafetensorsFile read_safetensors(const std::filesystem::path& path);
SafetensorsFile parse_safetensors(const std::shared_ptr<MappedFile>& file);

/// The tensors of every shard that an index such as `model.safetensors.index.json` names.
std::vector<StoredTensor> read_safetensors_shards(const std::filesystem::path& index);

/// Writes all or nothing. Errors: CannotWrite.
void write_safetensors(const std::filesystem::path& path, std::span<const ArrayToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace v0
}  // namespace gemloupe
