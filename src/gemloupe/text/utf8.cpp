#include "gemloupe/text/utf8.h"

#include <algorithm>

namespace gemloupe {
inline namespace v0 {

namespace {

/// The bytes that may come second after `lead`, which are fewer where overlong forms, surrogates or values past
/// U+10FFFF would begin.
std::pair<uint8_t, uint8_t> second_byte(uint8_t lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

uint32_t sequence_length(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t at) {
  const uint8_t lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return {lead, 1, true};
  const uint32_t length = sequence_length(lead);
  if (length == 0) return {};
  char32_t value = lead & (0x7F >> length);
  auto [low, high] = second_byte(lead);
  for (uint32_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {0xFFFD, i, false, true};
    const uint8_t byte = static_cast<uint8_t>(text[at + i]);
    if (byte < low || byte > high) return {0xFFFD, i, false};
    value = (value << 6) | (byte & 0x3F);
    low = 0x80, high = 0xBF;
  }
  return {value, length, true};
}

void append_utf8(std::string& text, char32_t value) {
  auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6), put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12), put(0x80 | (value >> 6 & 0x3F)), put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18), put(0x80 | (value >> 12 & 0x3F)), put(0x80 | (value >> 6 & 0x3F)),
        put(0x80 | (value & 0x3F));
  }
}

bool is_space(char32_t value) {
  return (value >= 0x09 && value <= 0x0D) || value == 0x20 || value == 0x85 || value == 0xA0 || value == 0x1680 ||
         (value >= 0x2000 && value <= 0x200A) || value == 0x2028 || value == 0x2029 || value == 0x202F ||
         value == 0x205F || value == 0x3000;
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint point = code_point_at(text, at);
    if (!is_space(point.value)) break;
    at += point.bytes;
  }
  return at;
}

size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!is_space(code_point_at(text, begin).value)) break;
    end = begin;
  }
  return text.size() - end;
}

std::vector<Range> code_point_ranges(std::string_view text, const std::vector<Range>& byte_ranges) {
  // The ranges ascend, and the byte tokens of one character share its range: what was walked is not walked again.
  struct Place {
    size_t byte = 0, point = 0;
  };
  auto walk = [&](Place from, size_t target) {
    for (target = std::min(target, text.size()); from.byte < target; ++from.point)
      from.byte += code_point_at(text, from.byte).bytes;
    return from;
  };
  Place first, last;
  std::vector<Range> ranges;
  ranges.reserve(byte_ranges.size());
  for (const auto& [begin, end] : byte_ranges) {
    first = walk(begin >= last.byte ? last : begin >= first.byte ? first : Place{}, begin);
    last = walk(first, end);
    ranges.emplace_back(first.point, last.point);
  }
  return ranges;
}

}  // namespace v0
}  // namespace gemloupe
