// UTF-8, one code point at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gemloupe {
inline namespace v0 {

/// "▁", which stands for a space inside Gemma's vocabularies.
inline constexpr std::string_view lower_block = "\xE2\x96\x81";

/// U+FFFD, what stands for bytes that are not UTF-8.
inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

/// The code point that begins at a byte; where the bytes are broken, as many of them as Unicode counts as one error (a
/// maximal subpart, which Python's errors="replace" turns into one U+FFFD as well).
struct CodePoint {
  char32_t value = 0xFFFD;
  uint32_t bytes = 1;
  bool valid = false;
  bool cut_off = false;  ///< not valid, but the text ends where it might have gone on
};

CodePoint code_point_at(std::string_view text, size_t at);

void append_utf8(std::string& text, char32_t value);

/// Unicode's White_Space: what `\s` matches.
bool is_space(char32_t value);

/// How many leading and trailing bytes of `text` are white space.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

/// Byte ranges of `text` (UTF-8) as ranges of code points, as Python indexes its strings.
using Range = std::pair<size_t, size_t>;
std::vector<Range> code_point_ranges(std::string_view text, const std::vector<Range>& byte_ranges);

}  // namespace v0
}  // namespace gemloupe
