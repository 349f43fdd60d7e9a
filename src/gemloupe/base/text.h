// Small text functions that several folders need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gemloupe {
inline namespace v0 {

std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
bool starts_with_any(std::string_view text, const std::vector<std::string>& prefixes);

/// `*` any run of characters but '.', `**` any run at all, `?` one character.
bool glob_matches(std::string_view pattern, std::string_view text);

/// Those of `candidates` that look most like `name`, best first, at most `most`; none when nothing is near.
std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates, size_t most = 3);

/// "a, b or c", each in quotes: for messages.
std::string quoted_list(const std::vector<std::string>& words, std::string_view last_separator = " or ");

/// "[2, 3]" for shapes in messages.
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace v0
}  // namespace gemloupe
