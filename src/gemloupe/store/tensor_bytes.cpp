#include "gemloupe/store/tensor_bytes.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/printable.h"

namespace gemloupe {
inline namespace v0 {

std::optional<int64_t> element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return std::nullopt;
  return count;
}

std::optional<uint64_t> byte_count(DType dtype, const std::vector<int64_t>& shape) {
  const DTypeTraits& type = traits(dtype);
  const std::optional<int64_t> elements = element_count(shape);
  if (!elements) return std::nullopt;
  if (type.block_size > 1 && (shape.empty() || shape.back() % type.block_size != 0)) return std::nullopt;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(*elements / type.block_size, int64_t{type.block_bytes}, &bytes)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

StoredTensor stored_tensor(const std::shared_ptr<MappedFile>& file, Extent extent) {
  const DTypeTraits& type = traits(extent.dtype);
  StoredTensor tensor{std::move(extent.name),
                      extent.dtype,
                      std::move(extent.shape),
                      file->data() + extent.begin,
                      extent.end - extent.begin,
                      file->path(),
                      file};
  const bool aligned = reinterpret_cast<uintptr_t>(tensor.data) % static_cast<size_t>(type.block_bytes) == 0;
  if (type.block_size > 1 || aligned || tensor.bytes == 0) return tensor;
  std::shared_ptr<std::byte[]> copy(new std::byte[tensor.bytes]);
  std::memcpy(copy.get(), tensor.data, tensor.bytes);
  tensor.data = copy.get();
  tensor.file = std::move(copy);
  return tensor;
}

void refuse_overlaps(std::vector<Extent>& extents, const std::filesystem::path& path) {
  std::unordered_set<std::string_view> names;
  for (const Extent& extent : extents)
    if (!names.insert(extent.name).second)
      throw BadCheckpoint(path.string() + ": tensor " + in_quotes(extent.name) +
                          " is there twice; a name must be unique, write the file again");
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  for (size_t i = 1; i < extents.size(); ++i)
    if (extents[i].begin < extents[i - 1].end)
      throw BadCheckpoint(path.string() + ": tensors " + in_quotes(extents[i - 1].name) + " and " +
                          in_quotes(extents[i].name) + " overlap: the first ends at byte " +
                          std::to_string(extents[i - 1].end) + ", the second begins at byte " +
                          std::to_string(extents[i].begin) + "; get the file again");
}

void sort_by_name(std::vector<StoredTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
}

}  // namespace v0
}  // namespace gemloupe
