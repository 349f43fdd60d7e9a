// Little-endian values from a file's bytes, never past their end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {

class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, const std::filesystem::path& path, size_t at = 0)
      : bytes_(bytes), path_(path), at_(std::min(at, bytes.size())) {}

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }
  const std::filesystem::path& path() const { return path_; }

  /// `what` names the value for the message: "the tensor count".
  template <class T>
  T number(std::string_view what) {
    static_assert(std::is_arithmetic_v<T>);
    need(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  std::string_view text(uint64_t length, std::string_view what) {
    need(length, what);
    std::string_view out(reinterpret_cast<const char*>(bytes_.data()) + at_, length);
    at_ += length;
    return out;
  }

  std::span<const std::byte> raw(uint64_t length, std::string_view what) {
    need(length, what);
    auto out = bytes_.subspan(at_, length);
    at_ += length;
    return out;
  }

  void skip(uint64_t length, std::string_view what) { raw(length, what); }

  void need(uint64_t length, std::string_view what) const {
    if (length <= left()) return;
    throw BadCheckpoint(path_.string() + ": cut short or broken: expected " + std::to_string(length) + " bytes for " +
                        std::string(what) + " at byte " + std::to_string(at_) + ", found " + std::to_string(left()) +
                        "; get the file again");
  }

 private:
  std::span<const std::byte> bytes_;
  const std::filesystem::path& path_;
  size_t at_ = 0;
};

}  // namespace v0
}  // namespace gemloupe
