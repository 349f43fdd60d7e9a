#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/store/safetensors.h"
#include "gemloupe/store/strict_json.h"
#include "gemloupe/store/tensor_bytes.h"

namespace gemloupe {
inline namespace v0 {
namespace {

namespace fs = std::filesystem;

/// Shard file name → the tensors that the index places in it.
using Shards = std::map<std::string, std::vector<std::string>>;

Shards read_index(const fs::path& index) {
  const json content = read_json(index);
  const auto map = content.is_object() ? content.find("weight_map") : content.end();
  if (map == content.end() || !map->is_object() || map->empty())
    throw BadCheckpoint(index.string() +
                        ": 'weight_map' is missing, expected {tensor: shard file}; get the file again");
  Shards shards;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : file.dump();
    if (!file.is_string() || name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos)
      throw BadCheckpoint(index.string() + ": tensor " + in_quotes(tensor) + " is placed in " + in_quotes(name) +
                          ", expected the name of a file in the same folder; correct the index");
    shards[name].push_back(tensor);
  }
  return shards;
}

void refuse_missing_shards(const fs::path& index, const Shards& shards) {
  std::string missing;
  size_t count = 0;
  for (const auto& [name, tensors] : shards) {
    std::error_code error;
    if (fs::exists(index.parent_path() / name, error)) continue;
    if (++count <= 8) missing += (missing.empty() ? "" : ", ") + in_quotes(name);
  }
  if (count == 0) return;
  throw BadCheckpoint(index.string() + ": " + std::to_string(count) + " of " + std::to_string(shards.size()) +
                      " shards are missing from the folder: " + missing + (count > 8 ? ", …" : "") +
                      "; download the checkpoint again");
}

}  // namespace

std::vector<StoredTensor> read_safetensors_shards(const fs::path& index) {
  const Shards shards = read_index(index);
  refuse_missing_shards(index, shards);
  std::vector<StoredTensor> all;
  for (const auto& [name, expected] : shards) {
    std::vector<StoredTensor> tensors = read_safetensors(index.parent_path() / name).tensors;
    for (const std::string& tensor : expected) {
      const auto at = std::lower_bound(tensors.begin(), tensors.end(), tensor,
                                       [](const StoredTensor& a, const std::string& b) { return a.name < b; });
      if (at == tensors.end() || at->name != tensor)
        throw BadCheckpoint(index.string() + ": tensor " + in_quotes(tensor) + " should be in " + in_quotes(name) +
                            ", which does not hold it; download the checkpoint again");
    }
    std::move(tensors.begin(), tensors.end(), std::back_inserter(all));
  }
  sort_by_name(all);
  const auto twin = std::adjacent_find(all.begin(), all.end(), [](auto& a, auto& b) { return a.name == b.name; });
  if (twin != all.end())
    throw BadCheckpoint(index.string() + ": tensor " + in_quotes(twin->name) + " is in two shards, " +
                        in_quotes(twin->path.filename().string()) + " and " +
                        in_quotes(std::next(twin)->path.filename().string()) + "; download the checkpoint again");
  return all;
}

}  // namespace v0
}  // namespace gemloupe
