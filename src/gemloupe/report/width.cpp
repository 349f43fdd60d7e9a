#include "gemloupe/report/width.h"

#include <algorithm>
#include <array>

#include "gemloupe/base/text.h"
#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {
namespace {

struct CodePoints {
  char32_t first, last;
};

// Unicode's East Asian Width W and F, by blocks.
constexpr std::array kWide{CodePoints{0x1100, 0x115F},   CodePoints{0x231A, 0x231B},   CodePoints{0x23E9, 0x23EC},
                           CodePoints{0x25FD, 0x25FE},   CodePoints{0x2614, 0x2615},   CodePoints{0x2648, 0x2653},
                           CodePoints{0x26AA, 0x26AB},   CodePoints{0x26BD, 0x26BE},   CodePoints{0x2705, 0x2705},
                           CodePoints{0x270A, 0x270B},   CodePoints{0x2728, 0x2728},   CodePoints{0x274C, 0x274C},
                           CodePoints{0x2753, 0x2757},   CodePoints{0x2795, 0x2797},   CodePoints{0x2B1B, 0x2B1C},
                           CodePoints{0x2B50, 0x2B55},   CodePoints{0x2E80, 0x303E},   CodePoints{0x3041, 0x33FF},
                           CodePoints{0x3400, 0x4DBF},   CodePoints{0x4E00, 0x9FFF},   CodePoints{0xA000, 0xA4CF},
                           CodePoints{0xA960, 0xA97C},   CodePoints{0xAC00, 0xD7A3},   CodePoints{0xF900, 0xFAFF},
                           CodePoints{0xFE30, 0xFE6F},   CodePoints{0xFF01, 0xFF60},   CodePoints{0xFFE0, 0xFFE6},
                           CodePoints{0x17000, 0x18CFF}, CodePoints{0x1B000, 0x1B2FF}, CodePoints{0x1F18E, 0x1F19A},
                           CodePoints{0x1F200, 0x1F64F}, CodePoints{0x1F680, 0x1F6FF}, CodePoints{0x1F7E0, 0x1F7EB},
                           CodePoints{0x1F90C, 0x1F9FF}, CodePoints{0x1FA70, 0x1FAFF}, CodePoints{0x20000, 0x3FFFD}};

// Marks that sit on the character before them, joiners and variation selectors: the common blocks.
constexpr std::array kNone{
    CodePoints{0x0300, 0x036F}, CodePoints{0x0483, 0x0489}, CodePoints{0x0591, 0x05BD},   CodePoints{0x0610, 0x061A},
    CodePoints{0x064B, 0x065F}, CodePoints{0x0900, 0x0902}, CodePoints{0x093C, 0x093C},   CodePoints{0x0941, 0x0948},
    CodePoints{0x094D, 0x094D}, CodePoints{0x0E31, 0x0E31}, CodePoints{0x0E34, 0x0E3A},   CodePoints{0x0E47, 0x0E4E},
    CodePoints{0x1AB0, 0x1AFF}, CodePoints{0x1DC0, 0x1DFF}, CodePoints{0x200B, 0x200F},   CodePoints{0x202A, 0x202E},
    CodePoints{0x2060, 0x2064}, CodePoints{0x2066, 0x206F}, CodePoints{0x20D0, 0x20FF},   CodePoints{0xFE00, 0xFE0F},
    CodePoints{0xFE20, 0xFE2F}, CodePoints{0xFEFF, 0xFEFF}, CodePoints{0x1F3FB, 0x1F3FF}, CodePoints{0xE0000, 0xE01EF}};

template <class Table>
bool lies_in(const Table& table, char32_t value) {
  auto after = std::upper_bound(table.begin(), table.end(), value,
                                [](char32_t v, const CodePoints& range) { return v < range.first; });
  return after != table.begin() && value <= std::prev(after)->last;
}

size_t width_of(char32_t value) {
  if (value < 0x300) return 1;
  if (lies_in(kNone, value)) return 0;
  return lies_in(kWide, value) ? 2 : 1;
}

// Text that reorders what follows it, or moves the cursor, is never sent to a terminal.
std::string_view picture_of(char32_t value) {
  if (value == '\n') return "↵";
  if (value == '\t') return "⇥";
  if (value < 0x20 || (value >= 0x7F && value < 0xA0)) return "·";
  if ((value >= 0x202A && value <= 0x202E) || (value >= 0x2066 && value <= 0x2069)) return "·";
  if (value == 0x2028 || value == 0x2029) return "↵";
  return {};
}

// How many bytes of `text` fit `width` columns; at least one character.
size_t bytes_that_fit(std::string_view text, size_t width) {
  size_t at = 0, used = 0;
  while (at < text.size()) {
    CodePoint point = code_point_at(text, at);
    used += width_of(point.value);
    if (used > width && at > 0) break;
    at += point.bytes;
  }
  return at;
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) {
    CodePoint point = code_point_at(text, at);
    width += width_of(point.value);
    at += point.bytes;
  }
  return width;
}

std::string padded(std::string_view text, size_t width) {
  size_t has = display_width(text);
  return std::string(text) + std::string(has < width ? width - has : 0, ' ');
}

std::vector<std::string> wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines{""};
  auto add = [&](std::string_view word) {
    std::string& line = lines.back();
    if (!line.empty() && display_width(line) + 1 + display_width(word) <= width) {
      line += " ";
      line += word;
      return;
    }
    if (!line.empty()) lines.emplace_back();
    while (display_width(word) > width) {
      size_t fits = bytes_that_fit(word, width);
      lines.back() = word.substr(0, fits);
      lines.emplace_back();
      word.remove_prefix(fits);
    }
    lines.back() = word;
  };
  for (const std::string& word : split(text, ' '))
    if (!word.empty()) add(word);
  return lines;
}

std::string on_one_line(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    CodePoint point = code_point_at(text, at);
    if (!point.valid) {
      out += replacement_character;
    } else {
      std::string_view picture = picture_of(point.value);
      out += picture.empty() ? text.substr(at, point.bytes) : picture;
    }
    at += point.bytes;
  }
  return out;
}

std::string quoted_token(std::string_view text) {
  return "\"" + on_one_line(text) + "\"";
}

}  // namespace v0
}  // namespace gemloupe
