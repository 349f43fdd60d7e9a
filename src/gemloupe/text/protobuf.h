// Protocol buffers' wire format, as far as a tokenizer.model needs it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gemloupe {
inline namespace v0 {

/// Walks the fields of one message. Every length is checked against what is there: BadTokenizer with the file
/// otherwise.
class ProtobufReader {
 public:
  ProtobufReader(std::string_view message, const std::string& file) : rest_(message), file_(file) {}

  /// Goes to the next field, past a value that was not taken; false at the end.
  bool next();
  uint32_t field() const { return field_; }

  /// The field's value. Errors: BadTokenizer where it is of another kind.
  int64_t integer();
  bool boolean() { return integer() != 0; }
  float real();
  std::string_view bytes();

 private:
  enum Kind : uint32_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

  uint64_t varint();
  std::string_view take(uint64_t count);
  void expect(Kind kind);

  std::string_view rest_;
  const std::string& file_;
  uint32_t field_ = 0, kind_ = 0;
  bool taken_ = true;
};

}  // namespace v0
}  // namespace gemloupe
