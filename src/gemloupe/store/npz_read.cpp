#include <zlib.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/byte_reader.h"
#include "gemloupe/store/npy.h"
#include "gemloupe/store/npz.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/store/strict_json.h"
#include "gemloupe/store/tensor_bytes.h"

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr const char* kAgain = "; get the file again";
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // "the value is in the 64-bit field"
constexpr uint16_t kStored = 0, kDeflated = 8;

/// One row of the archive's central directory.
struct Member {
  std::string name;
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0, header_at = 0;
};

struct Directory {
  uint64_t members = 0, at = 0;
};

class Archive {
 public:
  explicit Archive(std::shared_ptr<MappedFile> file) : file_(std::move(file)) {}

  std::vector<Member> members() const {
    const Directory directory = find_directory();
    ByteReader reader = reader_at(directory.at);
    constexpr uint64_t kLeastRow = 46;
    if (directory.members > reader.left() / kLeastRow)
      refuse("would have " + std::to_string(directory.members) + " members, more than fit into it");
    std::vector<Member> out;
    std::set<std::string_view> names;
    out.reserve(directory.members);
    uint64_t packed = 0;
    for (uint64_t i = 0; i < directory.members; ++i) {
      out.push_back(read_member(reader));
      packed += std::min<uint64_t>(out.back().packed, file_->size() + 1);
      if (!names.insert(out.back().name).second) refuse("member " + in_quotes(out.back().name) + " is there twice");
    }
    if (packed > file_->size()) refuse("its members overlap, or are longer than the file");
    return out;
  }

  /// The member's array, after its checksum has been verified.
  StoredTensor array(const Member& member, std::string name) const {
    const std::string where = file_->path().string() + ": array " + in_quotes(name);
    if (member.flags & 1) throw BadCheckpoint(where + " is encrypted; save it without a password");
    if (member.method != kStored && member.method != kDeflated)
      throw BadCheckpoint(where + " is compressed with method " + std::to_string(member.method) +
                          ", expected stored or deflated; save it with numpy.savez or numpy.savez_compressed");
    const uint64_t begin = data_of(member);
    const auto packed = file_->bytes().subspan(begin, member.packed);
    if (member.method == kStored) {
      if (member.size != member.packed) throw BadCheckpoint(where + " has two different sizes" + kAgain);
      verify(packed, member, where);
      return parse_npy(file_, begin, begin + member.packed, std::move(name), where);
    }
    const auto inflated = MappedFile::from_bytes(file_->path(), inflate_member(packed, member, where));
    verify(inflated->bytes(), member, where);
    return parse_npy(inflated, 0, inflated->size(), std::move(name), where);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw BadCheckpoint(file_->path().string() + ": " + what + kAgain);
  }

  ByteReader reader_at(uint64_t at) const { return {file_->bytes(), file_->path(), at}; }

  /// The end record is the last thing in the file but for a comment of less than 64 KiB.
  Directory find_directory() const {
    constexpr size_t kEnd = 22, kLongestComment = 65535;
    const std::string_view text = file_->text();
    const size_t from = text.size() > kEnd + kLongestComment ? text.size() - kEnd - kLongestComment : 0;
    const size_t end = text.rfind("PK\x05\x06");
    if (text.size() < kEnd || end == std::string_view::npos || end < from || end > text.size() - kEnd)
      refuse("has no end-of-archive record: it is cut short, or no .npz file");
    ByteReader reader = reader_at(end + 10);
    Directory directory;
    directory.members = reader.number<uint16_t>("the member count");
    reader.skip(4, "the directory's size");
    directory.at = reader.number<uint32_t>("the directory's offset");
    if (end >= 20 && text.substr(end - 20, 4) == "PK\x06\x07") return find_directory64(end - 20);
    return directory;
  }

  Directory find_directory64(uint64_t locator) const {
    ByteReader reader = reader_at(reader_at(locator + 8).number<uint64_t>("the 64-bit end record's offset"));
    if (reader.text(4, "the 64-bit end record") != "PK\x06\x06") refuse("its 64-bit end record is broken");
    reader.skip(28, "the 64-bit end record");
    Directory directory;
    directory.members = reader.number<uint64_t>("the member count");
    reader.skip(8, "the directory's size");
    directory.at = reader.number<uint64_t>("the directory's offset");
    return directory;
  }

  Member read_member(ByteReader& reader) const {
    Member member;
    if (reader.text(4, "a directory entry") != "PK\x01\x02") refuse("its directory is broken");
    reader.skip(4, "a directory entry");
    member.flags = reader.number<uint16_t>("a directory entry");
    member.method = reader.number<uint16_t>("a directory entry");
    reader.skip(4, "a directory entry");
    member.crc = reader.number<uint32_t>("a directory entry");
    member.packed = reader.number<uint32_t>("a directory entry");
    member.size = reader.number<uint32_t>("a directory entry");
    const auto name = reader.number<uint16_t>("a directory entry");
    const auto extra = reader.number<uint16_t>("a directory entry");
    const auto comment = reader.number<uint16_t>("a directory entry");
    reader.skip(8, "a directory entry");
    member.header_at = reader.number<uint32_t>("a directory entry");
    member.name = reader.text(name, "a member's name");
    read_extra(reader.raw(extra, "a member's extra field"), member);
    reader.skip(comment, "a member's comment");
    return member;
  }

  void read_extra(std::span<const std::byte> bytes, Member& member) const {
    ByteReader reader(bytes, file_->path());
    while (reader.left() >= 4) {
      const auto id = reader.number<uint16_t>("an extra field");
      const auto field = reader.raw(reader.number<uint16_t>("an extra field"), "an extra field");
      if (id != 1) continue;
      ByteReader wide(field, file_->path());
      for (uint64_t* value : {&member.size, &member.packed, &member.header_at})
        if (*value == kIn64) *value = wide.number<uint64_t>("a 64-bit field");
      return;
    }
  }

  /// Where the member's bytes begin, which its own header says; they lie inside the file.
  uint64_t data_of(const Member& member) const {
    ByteReader reader = reader_at(member.header_at);
    const bool is_header = reader.text(4, "a member's header") == "PK\x03\x04";
    reader.skip(22, "a member's header");
    const auto name = reader.number<uint16_t>("a member's header");
    const auto extra = reader.number<uint16_t>("a member's header");
    if (!is_header || reader.text(name, "a member's name") != member.name)
      refuse("the header of " + in_quotes(member.name) + " is broken");
    reader.skip(extra, "a member's extra field");
    reader.need(member.packed, "member " + in_quotes(member.name));
    return reader.at();
  }

  static void verify(std::span<const std::byte> bytes, const Member& member, const std::string& where) {
    const auto found = ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    if (found != member.crc) throw BadCheckpoint(where + ": its checksum is wrong, the bytes are damaged" + kAgain);
  }

  static std::vector<std::byte> inflate_member(std::span<const std::byte> packed, const Member& member,
                                               const std::string& where) {
    constexpr uint64_t kDensest = 1032;  // deflate cannot pack denser: a larger size is a lie
    if (member.size / kDensest > packed.size())
      throw BadCheckpoint(where + " would have " + std::to_string(member.size) + " bytes, packed into " +
                          std::to_string(packed.size()) + kAgain);
    std::vector<std::byte> out(member.size);
    z_stream stream{};
    check(::inflateInit2(&stream, -MAX_WBITS) == Z_OK, "inflateInit2");
    constexpr size_t kStep = size_t{1} << 30;  // zlib counts in 32 bits
    size_t in = 0, done = 0;
    int state = Z_OK;
    while (state == Z_OK) {
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data())) + in;
      stream.avail_in = static_cast<uInt>(std::min(kStep, packed.size() - in));
      stream.next_out = reinterpret_cast<Bytef*>(out.data()) + done;
      stream.avail_out = static_cast<uInt>(std::min(kStep, out.size() - done));
      const uInt had_in = stream.avail_in, had_out = stream.avail_out;
      state = ::inflate(&stream, Z_NO_FLUSH);
      in += had_in - stream.avail_in;
      done += had_out - stream.avail_out;
    }
    ::inflateEnd(&stream);
    if (state != Z_STREAM_END || done != out.size())
      throw BadCheckpoint(where + " cannot be unpacked: expected " + std::to_string(out.size()) + " bytes, found " +
                          std::to_string(done) + kAgain);
    return out;
  }

  std::shared_ptr<MappedFile> file_;
};

std::map<std::string, std::string> metadata_in(const StoredTensor& text) {
  const json object = parse_json({reinterpret_cast<const char*>(text.data), text.bytes}, text.path, "__metadata__");
  std::map<std::string, std::string> out;
  if (object.is_object())
    for (const auto& [key, value] : object.items())
      out[key] = value.is_string() ? value.get<std::string>() : value.dump();
  return out;
}

}  // namespace

NpzFile parse_npz(const std::shared_ptr<MappedFile>& file) {
  const Archive archive(file);
  NpzFile out;
  for (const Member& member : archive.members()) {
    constexpr std::string_view kSuffix = ".npy";
    if (!member.name.ends_with(kSuffix))
      throw BadCheckpoint(file->path().string() + ": member " + in_quotes(member.name) +
                          " is no array: its name should end with .npy; this is no .npz file");
    StoredTensor array = archive.array(member, member.name.substr(0, member.name.size() - kSuffix.size()));
    if (array.name == "__metadata__" && array.dtype == DType::U8)
      out.metadata = metadata_in(array);
    else
      out.arrays.push_back(std::move(array));
  }
  sort_by_name(out.arrays);
  return out;
}

NpzFile read_npz(const std::filesystem::path& path) {
  return parse_npz(MappedFile::open(path));
}

}  // namespace v0
}  // namespace gemloupe
