#include "gemloupe/store/printable.h"

#include <cstdint>

namespace gemloupe {
inline namespace v0 {
namespace {

/// Bytes of the UTF-8 character that `text` begins with; 0 where there is none.
size_t character_length(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = character_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text, size_t most) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    if (out.size() >= most) return out + "…";
    const size_t length = character_length(text);
    const uint8_t first = static_cast<uint8_t>(text[0]);
    if (length == 0 || first < 0x20 || first == 0x7F) {
      out += {'\\', 'x', kHex[first >> 4], kHex[first & 15]};
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

std::string in_quotes(std::string_view text) {
  return "'" + printable(text) + "'";
}

}  // namespace v0
}  // namespace gemloupe
