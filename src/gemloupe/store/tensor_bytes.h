// What every reader of tensor files does with a table of tensors once it is parsed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gemloupe/store/checkpoint.h"
#include "gemloupe/store/mapped_file.h"

namespace gemloupe {
inline namespace v0 {

/// Elements of a shape; none where a size is negative or the product does not fit in 63 bits.
std::optional<int64_t> element_count(const std::vector<int64_t>& shape);

/// Bytes that a tensor takes; none where they do not fit in 63 bits or where its rows are no whole number of blocks.
std::optional<uint64_t> byte_count(DType dtype, const std::vector<int64_t>& shape);

/// Where a tensor lies, before anything is made of it.
struct Extent {
  std::string name;
  DType dtype{};
  std::vector<int64_t> shape;
  uint64_t begin = 0;  ///< counted from the start of the file
  uint64_t end = 0;
};

/// The tensor at `extent`, whose bounds have been checked. A view of the file, unless its elements lie at an address
/// that their type cannot have: then a copy.
StoredTensor stored_tensor(const std::shared_ptr<MappedFile>& file, Extent extent);

/// Sorts by place in the file and refuses two tensors that share bytes, or a name.
void refuse_overlaps(std::vector<Extent>& extents, const std::filesystem::path& path);

/// Sorts by name, as Checkpoint::find needs it.
void sort_by_name(std::vector<StoredTensor>& tensors);

}  // namespace v0
}  // namespace gemloupe
