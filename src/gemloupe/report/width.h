// How much room text takes on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gemloupe {
inline namespace v0 {

/// In columns: East Asian wide characters and emoji take two, combining marks none.
size_t display_width(std::string_view text);

/// `text` and spaces up to `width` columns.
std::string padded(std::string_view text, size_t width);

/// Lines of at most `width` columns, broken at spaces; a word that is longer is broken inside.
std::vector<std::string> wrap(std::string_view text, size_t width);

/// For one line on a terminal: line ends, tabs and other control characters as pictures (↵ ⇥ ·), so that no text from
/// a file can move the cursor or colour the screen.
std::string on_one_line(std::string_view text);

/// `text` in double quotes, on one line: leading and trailing spaces can be seen.
std::string quoted_token(std::string_view text);

}  // namespace v0
}  // namespace gemloupe
