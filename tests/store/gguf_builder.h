// GGUF files byte by byte, right and wrong.
#pragma once

#include <string>

#include "store/files.h"

namespace store_tests {

/// Types of metadata values.
enum GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

class GgufBuilder {
 public:
  uint32_t version = 3;
  uint64_t tensors = 0, pairs = 0;  // as the header says: counted, and free to be changed

  static std::string text(std::string_view value) { return bytes_of<uint64_t>(value.size()) + std::string(value); }

  /// `value` is the value's bytes.
  GgufBuilder& pair(std::string_view key, uint32_t type, const std::string& value) {
    pairs_ += text(key) + bytes_of(type) + value;
    ++pairs;
    return *this;
  }

  GgufBuilder& array(std::string_view key, uint32_t type, uint64_t count, const std::string& values) {
    return pair(key, kArray, bytes_of(type) + bytes_of(count) + values);
  }

  /// `shape` is innermost first, as in the file.
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type, uint64_t offset) {
    table_ += text(name) + bytes_of(static_cast<uint32_t>(shape.size()));
    for (uint64_t size : shape) table_ += bytes_of(size);
    table_ += bytes_of(type) + bytes_of(offset);
    ++tensors;
    return *this;
  }

  std::string file(size_t data, size_t alignment = 32) const {
    std::string out = "GGUF" + bytes_of(version) + bytes_of(tensors) + bytes_of(pairs) + pairs_ + table_;
    out.append((alignment - out.size() % alignment) % alignment, '\0');
    for (size_t i = 0; i < data; ++i) out += static_cast<char>(i);
    return out;
  }

 private:
  std::string pairs_, table_;
};

}  // namespace store_tests
