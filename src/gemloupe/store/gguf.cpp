#include "gemloupe/store/gguf.h"

#include <bit>
#include <string>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/store/byte_reader.h"
#include "gemloupe/store/gguf_metadata.h"
#include "gemloupe/store/gguf_types.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/store/tensor_bytes.h"

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr const char* kAgain = "; get the file again";
constexpr uint32_t kMostDims = 4;  // ggml's own limit

DType read_dtype(ByteReader& reader, const std::string& tensor) {
  const auto type = reader.number<uint32_t>("the type of tensor " + tensor);
  if (type < gguf::kTensorTypes.size() && gguf::kTensorTypes[type].dtype) return *gguf::kTensorTypes[type].dtype;
  const std::string name =
      type < gguf::kTensorTypes.size() ? " (" + std::string(gguf::kTensorTypes[type].name) + ")" : "";
  throw BadCheckpoint(reader.path().string() + ": tensor " + tensor + " has ggml type " + std::to_string(type) + name +
                      "; gemloupe reads F32, F16, BF16, F64, I8 to I64, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and Q2_K to Q6_K: "
                      "take a file with one of them");
}

std::vector<int64_t> read_shape(ByteReader& reader, const std::string& tensor) {
  const std::string where = reader.path().string() + ": tensor " + tensor;
  const auto dims = reader.number<uint32_t>("the number of dimensions of tensor " + tensor);
  if (dims > kMostDims)
    throw BadCheckpoint(where + " has " + std::to_string(dims) + " dimensions, expected at most 4" + kAgain);
  std::vector<int64_t> shape(dims);
  for (uint32_t i = dims; i-- > 0;) {  // the file has the innermost first
    const auto size = reader.number<uint64_t>("the shape of tensor " + tensor);
    if (size > INT64_MAX) throw BadCheckpoint(where + " has a dimension of " + std::to_string(size) + kAgain);
    shape[i] = static_cast<int64_t>(size);
  }
  return shape;
}

/// One row of the tensor table; `begin` and `end` still count from the start of the data.
Extent read_extent(ByteReader& reader, uint64_t number, uint64_t alignment) {
  Extent extent;
  extent.name = gguf_text(reader, "the name of tensor " + std::to_string(number));
  const std::string tensor = in_quotes(extent.name), where = reader.path().string() + ": tensor " + tensor;
  extent.shape = read_shape(reader, tensor);
  extent.dtype = read_dtype(reader, tensor);
  extent.begin = reader.number<uint64_t>("the offset of tensor " + tensor);
  if (extent.begin % alignment != 0)
    throw BadCheckpoint(where + " begins at " + std::to_string(extent.begin) + ", expected a multiple of " +
                        std::to_string(alignment) + kAgain);
  const std::optional<uint64_t> bytes = byte_count(extent.dtype, extent.shape);
  if (!bytes)
    throw BadCheckpoint(where + ": " + std::string(traits(extent.dtype).name) + " cannot have the shape " +
                        shape_text(extent.shape) + ": too large, or its rows are no multiple of " +
                        std::to_string(traits(extent.dtype).block_size) + kAgain);
  if (__builtin_add_overflow(extent.begin, *bytes, &extent.end))
    throw BadCheckpoint(where + " ends beyond 2^64" + kAgain);
  return extent;
}

uint64_t read_alignment(const json& metadata, const std::filesystem::path& path) {
  const auto at = metadata.find("general.alignment");
  if (at == metadata.end()) return 32;
  const bool good = at->is_number_unsigned() && std::has_single_bit(at->get<uint64_t>()) &&
                    at->get<uint64_t>() <= (uint64_t{1} << 30);
  if (!good)
    throw BadCheckpoint(path.string() + ": 'general.alignment' is " + printable(at->dump(), 60) +
                        ", expected a power of two" + kAgain);
  return at->get<uint64_t>();
}

void read_magic(ByteReader& reader) {
  const std::string where = reader.path().string();
  if (reader.text(4, "the magic 'GGUF'") != "GGUF")
    throw BadCheckpoint(where + ": does not begin with 'GGUF': this is no GGUF file");
  const auto version = reader.number<uint32_t>("the GGUF version");
  if (version != 0 && (version & 0xFFFF) == 0)
    throw BadCheckpoint(where + ": is big-endian, expected little-endian; convert it with gguf-convert-endian");
  if (version != 2 && version != 3)
    throw BadCheckpoint(where + ": is GGUF version " + std::to_string(version) +
                        ", expected 2 or 3; convert it with a current llama.cpp");
}

/// Makes the extents count from the start of the file, and checks that they lie inside it.
void place(std::vector<Extent>& extents, const MappedFile& file, uint64_t data_begin) {
  for (Extent& extent : extents) {
    const uint64_t room = file.size() > data_begin ? file.size() - data_begin : 0;
    if (extent.end > room)
      throw BadCheckpoint(file.path().string() + ": tensor " + in_quotes(extent.name) + " ends at byte " +
                          std::to_string(extent.end) + " of the data, but the file has " + std::to_string(room) +
                          " bytes of data: it is cut short" + kAgain);
    extent.begin += data_begin;
    extent.end += data_begin;
  }
}

}  // namespace

GgufFile parse_gguf(const std::shared_ptr<MappedFile>& file) {
  ByteReader reader(file->bytes(), file->path());
  read_magic(reader);
  const auto tensors = reader.number<uint64_t>("the tensor count");
  const auto pairs = reader.number<uint64_t>("the metadata count");
  GgufFile out;
  read_gguf_metadata(reader, pairs, out);
  const uint64_t alignment = read_alignment(out.metadata, file->path());

  constexpr uint64_t kLeastRow = 8 + 4 + 4 + 8;
  if (tensors > reader.left() / kLeastRow)
    throw BadCheckpoint(file->path().string() + ": would have " + std::to_string(tensors) + " tensors, but only " +
                        std::to_string(reader.left()) + " bytes are left: cut short or broken" + kAgain);
  std::vector<Extent> extents;
  extents.reserve(tensors);
  for (uint64_t i = 0; i < tensors; ++i) extents.push_back(read_extent(reader, i, alignment));
  place(extents, *file, (reader.at() + alignment - 1) / alignment * alignment);
  refuse_overlaps(extents, file->path());
  for (Extent& extent : extents) out.tensors.push_back(stored_tensor(file, std::move(extent)));
  sort_by_name(out.tensors);
  return out;
}

}  // namespace v0
}  // namespace gemloupe
