#include "gemloupe/store/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/store/atomic_file.h"
#include "gemloupe/store/byte_reader.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/store/strict_json.h"
#include "gemloupe/store/tensor_bytes.h"

namespace gemloupe {
inline namespace v0 {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLargestHeader = 100'000'000;  // the reference implementation's limit
constexpr const char* kAgain = "; get the file again";

/// One entry of the header, with messages that name it.
class Entry {
 public:
  Entry(const fs::path& path, const std::string& name, const json& value)
      : where_(path.string() + ": tensor " + in_quotes(name)), name_(name), value_(value) {}

  /// `data_begin` is where the header ends, `file_size` where the file does.
  Extent extent(uint64_t data_begin, uint64_t file_size) const {
    Extent extent{name_, dtype(), sizes("shape"), 0, 0};
    const std::vector<int64_t> offsets = sizes("data_offsets");
    const uint64_t room = file_size - data_begin;
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      refuse("data_offsets are " + shape_text(offsets) + ", expected [begin, end]");
    if (static_cast<uint64_t>(offsets[1]) > room)
      refuse("its bytes end at " + std::to_string(offsets[1]) + " of the data, but the file has " +
             std::to_string(room) + " bytes of data: it is cut short");
    const std::optional<uint64_t> expected = byte_count(extent.dtype, extent.shape);
    const int64_t found = offsets[1] - offsets[0];
    if (!expected || *expected != static_cast<uint64_t>(found))
      refuse(std::string(traits(extent.dtype).name) + " of shape " + shape_text(extent.shape) + " takes " +
             (expected ? std::to_string(*expected) : "more than 2^63") + " bytes, but its data_offsets span " +
             std::to_string(found));
    extent.begin = data_begin + static_cast<uint64_t>(offsets[0]);
    extent.end = data_begin + static_cast<uint64_t>(offsets[1]);
    return extent;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { throw BadCheckpoint(where_ + ": " + what + kAgain); }

  const json& member(const char* key) const {
    if (!value_.is_object()) refuse("expected an object in the header, found " + printable(value_.dump(), 60));
    const auto at = value_.find(key);
    if (at == value_.end()) refuse("'" + std::string(key) + "' is missing from its header entry");
    return *at;
  }

  DType dtype() const {
    const json& spelling = member("dtype");
    if (!spelling.is_string()) refuse("its dtype is " + printable(spelling.dump(), 60) + ", expected a string");
    const auto& text = spelling.get_ref<const std::string&>();
    const std::optional<DType> dtype = dtype_from_safetensors(text);
    if (!dtype)
      throw BadCheckpoint(where_ + ": its dtype is " + in_quotes(text) +
                          "; gemloupe reads F64, F32, F16, BF16, I64, I32, I16, I8, U8 and BOOL: convert the "
                          "checkpoint to one of them");
    return *dtype;
  }

  std::vector<int64_t> sizes(const char* key) const {
    const json& list = member(key);
    bool good = list.is_array();
    std::vector<int64_t> out;
    for (const json& size : list) {
      good = good && size.is_number_unsigned() && size.get<uint64_t>() <= INT64_MAX;
      if (good) out.push_back(size.get<int64_t>());
    }
    if (!good) refuse("'" + std::string(key) + "' is " + printable(list.dump(), 60) + ", expected a list of sizes");
    return out;
  }

  std::string where_;
  const std::string& name_;
  const json& value_;
};

std::map<std::string, std::string> metadata_strings(const json& value, const fs::path& path) {
  std::map<std::string, std::string> out;
  if (!value.is_object()) throw BadCheckpoint(path.string() + ": __metadata__ is no object" + kAgain);
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      throw BadCheckpoint(path.string() + ": __metadata__ key " + in_quotes(key) + " is " + printable(text.dump(), 60) +
                          ", expected a string" + kAgain);
    out.emplace(key, text.get<std::string>());
  }
  return out;
}

/// No byte of the data may belong to no tensor, as in the reference: something could hide there.
void refuse_holes(const std::vector<Extent>& extents, uint64_t data_begin, uint64_t file_size, const fs::path& path) {
  uint64_t at = data_begin;
  for (const Extent& extent : extents) {
    if (extent.begin != at)
      throw BadCheckpoint(path.string() + ": " + std::to_string(extent.begin - at) + " bytes before tensor " +
                          in_quotes(extent.name) + " belong to no tensor" + kAgain);
    at = extent.end;
  }
  if (at != file_size)
    throw BadCheckpoint(path.string() + ": " + std::to_string(file_size - at) +
                        " bytes at the end of the file belong to no tensor" + kAgain);
}

json parse_header(const MappedFile& file, ByteReader& reader) {
  const std::string where = file.path().string();
  const auto length = reader.number<uint64_t>("the header's length");
  if (length > kLargestHeader)
    throw BadCheckpoint(where + ": its header would be " + std::to_string(length) + " bytes, expected at most " +
                        std::to_string(kLargestHeader) + "; this is no safetensors file");
  const std::string_view text = reader.text(length, "the header");
  if (!text.starts_with('{'))
    throw BadCheckpoint(where + ": the header does not begin with '{'; this is no safetensors file");
  return parse_json(text, file.path(), "the header");
}

}  // namespace

SafetensorsFile parse_safetensors(const std::shared_ptr<MappedFile>& file) {
  ByteReader reader(file->bytes(), file->path());
  const json header = parse_header(*file, reader);
  const uint64_t data_begin = reader.at();

  SafetensorsFile out;
  std::vector<Extent> extents;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__")
      out.metadata = metadata_strings(value, file->path());
    else
      extents.push_back(Entry(file->path(), name, value).extent(data_begin, file->size()));
  }
  refuse_overlaps(extents, file->path());
  refuse_holes(extents, data_begin, file->size(), file->path());
  for (Extent& extent : extents) out.tensors.push_back(stored_tensor(file, std::move(extent)));
  sort_by_name(out.tensors);
  return out;
}

SafetensorsFile read_safetensors(const fs::path& path) {
  return parse_safetensors(MappedFile::open(path));
}

}  // namespace v0
}  // namespace gemloupe
