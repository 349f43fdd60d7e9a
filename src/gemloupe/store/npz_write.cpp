#include <zlib.h>

#include <algorithm>
#include <set>
#include <string>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/atomic_file.h"
#include "gemloupe/store/npy.h"
#include "gemloupe/store/npz.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/store/tensor_bytes.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// Little-endian fields, one after the other.
class Fields {
 public:
  template <class T>
  Fields& put(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }

  Fields& text(std::string_view value) {
    text_ += value;
    return *this;
  }

  operator std::string_view() const { return text_; }
  size_t size() const { return text_.size(); }

 private:
  std::string text_;
};

/// Members are stored, not deflated: floats hardly shrink, and a stored one can be mapped.
class ArchiveWriter {
 public:
  ArchiveWriter(const std::filesystem::path& path, uint64_t zip64_from)
      : path_(path), zip64_from_(zip64_from), file_(path) {}

  void add(const ArrayToWrite& array) {
    const std::string name = array.name + ".npy";
    if (!is_utf8(name) || name.size() > 65535 || !names_.insert(name).second)
      throw CannotWrite(path_.string() + ": array " + in_quotes(array.name) +
                        " cannot be written under that name: names must be unique, short and UTF-8");
    const uint64_t at = file_.written();
    const uint64_t bytes = byte_count(array.dtype, array.shape).value_or(0);
    const bool wide = bytes + 65600 >= zip64_from_ || at >= zip64_from_;
    const std::string header = npy_header(array, at + 30 + name.size() + (wide ? 20 : 0), path_.string());
    const uint64_t size = header.size() + bytes;
    uLong crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(header.data()), header.size());
    crc = bytes ? ::crc32_z(crc, reinterpret_cast<const Bytef*>(array.data), bytes) : crc;
    Fields shared;  // what the member's header and its row in the directory have in common
    shared.put<uint16_t>(wide ? 45 : 20).put<uint16_t>(0x0800).put<uint16_t>(0);  // version, UTF-8 names, stored
    shared.put<uint16_t>(0).put<uint16_t>(0x21).put(
        static_cast<uint32_t>(crc));  // 1980-01-01: equal content, equal bytes
    shared.put(narrow(size, wide)).put(narrow(size, wide)).put(static_cast<uint16_t>(name.size()));
    Fields head;
    head.text("PK\x03\x04").text(shared).put<uint16_t>(wide ? 20 : 0).text(name);
    if (wide) head.put<uint16_t>(1).put<uint16_t>(16).put(size).put(size);
    file_.write(head);
    file_.write(header);
    file_.write(array.data, bytes);
    directory_.text("PK\x01\x02").put<uint16_t>(45).text(shared).put<uint16_t>(wide ? 28 : 0).put<uint16_t>(0);
    directory_.put<uint16_t>(0).put<uint16_t>(0).put<uint32_t>(0).put(narrow(at, wide)).text(name);
    if (wide) directory_.put<uint16_t>(1).put<uint16_t>(24).put(size).put(size).put(at);
  }

  void commit() {
    const uint64_t at = file_.written(), count = names_.size(), size = directory_.size();
    const bool wide = at >= zip64_from_ || count >= 0xFFFF || size >= zip64_from_;
    file_.write(directory_);
    Fields end;
    if (wide) {
      end.text("PK\x06\x06").put<uint64_t>(44).put<uint16_t>(45).put<uint16_t>(45).put<uint32_t>(0).put<uint32_t>(0);
      end.put(count).put(count).put(size).put(at);
      end.text("PK\x06\x07").put<uint32_t>(0).put(at + size).put<uint32_t>(1);
    }
    const auto members = static_cast<uint16_t>(wide ? 0xFFFF : count);
    end.text("PK\x05\x06").put<uint16_t>(0).put<uint16_t>(0).put(members).put(members);
    end.put(narrow(size, wide)).put(narrow(at, wide)).put<uint16_t>(0);
    file_.write(end);
    file_.commit();
  }

 private:
  static uint32_t narrow(uint64_t value, bool wide) { return wide ? 0xFFFFFFFF : static_cast<uint32_t>(value); }

  std::filesystem::path path_;
  uint64_t zip64_from_;
  AtomicFile file_;
  Fields directory_;
  std::set<std::string> names_;
};

}  // namespace

void write_npz(const std::filesystem::path& path, std::span<const ArrayToWrite> arrays,
               const std::map<std::string, std::string>& metadata, uint64_t zip64_from) {
  ArchiveWriter archive(path, zip64_from);
  for (const ArrayToWrite& array : arrays) archive.add(array);
  if (!metadata.empty()) {
    const std::string text = json(metadata).dump(-1, ' ', true, json::error_handler_t::replace);
    archive.add({"__metadata__",
                 DType::U8,
                 {static_cast<int64_t>(text.size())},
                 reinterpret_cast<const std::byte*>(text.data())});
  }
  archive.commit();
}

}  // namespace v0
}  // namespace gemloupe
