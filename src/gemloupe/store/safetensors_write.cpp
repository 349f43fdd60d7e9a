#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/store/atomic_file.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/store/safetensors.h"
#include "gemloupe/store/tensor_bytes.h"

namespace gemloupe {
inline namespace v0 {
namespace {

uint64_t bytes_to_write(const ArrayToWrite& tensor, const std::filesystem::path& path) {
  const std::string where = path.string() + ": tensor " + in_quotes(tensor.name);
  if (!is_utf8(tensor.name) || tensor.name == "__metadata__")
    throw CannotWrite(where + " cannot be written under that name; choose another");
  if (traits(tensor.dtype).safetensors.empty())
    throw CannotWrite(where + " is " + std::string(traits(tensor.dtype).name) +
                      ", which safetensors cannot hold; dequantise it first");
  const std::optional<uint64_t> bytes = byte_count(tensor.dtype, tensor.shape);
  if (!bytes) throw CannotWrite(where + " has the impossible shape " + shape_text(tensor.shape));
  return *bytes;
}

/// Largest elements first, as the reference writes them: so every tensor is aligned.
std::vector<const ArrayToWrite*> in_file_order(std::span<const ArrayToWrite> tensors) {
  std::vector<const ArrayToWrite*> order;
  for (const ArrayToWrite& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const ArrayToWrite* a, const ArrayToWrite* b) {
    return std::make_tuple(-traits(a->dtype).block_bytes, std::string_view(a->name)) <
           std::make_tuple(-traits(b->dtype).block_bytes, std::string_view(b->name));
  });
  return order;
}

std::string header_text(const json& header, const std::filesystem::path& path) {
  try {
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    return text;
  } catch (const json::exception&) {
    throw CannotWrite(path.string() + ": its metadata is not valid UTF-8");
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const ArrayToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  auto& entries = header.get_ref<json::object_t&>();
  if (!metadata.empty()) entries.emplace_back("__metadata__", json(metadata));
  const std::vector<const ArrayToWrite*> order = in_file_order(tensors);
  std::set<std::string_view> names;
  uint64_t at = 0;
  for (const ArrayToWrite* tensor : order) {
    if (!names.insert(tensor->name).second)
      throw CannotWrite(path.string() + ": tensor " + in_quotes(tensor->name) +
                        " is given twice; names must be unique");
    const uint64_t end = at + bytes_to_write(*tensor, path);
    entries.emplace_back(
        tensor->name,
        json{{"dtype", traits(tensor->dtype).safetensors}, {"shape", tensor->shape}, {"data_offsets", {at, end}}});
    at = end;
  }
  const std::string text = header_text(header, path);
  const uint64_t length = text.size();
  AtomicFile file(path);
  file.write(&length, sizeof(length));
  file.write(text);
  for (const ArrayToWrite* tensor : order) file.write(tensor->data, *byte_count(tensor->dtype, tensor->shape));
  file.commit();
}

}  // namespace v0
}  // namespace gemloupe
