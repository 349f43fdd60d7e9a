// Names and texts from files that nobody vouches for, made fit for messages.
#pragma once

#include <string>
#include <string_view>

namespace gemloupe {
inline namespace v0 {

bool is_utf8(std::string_view text);

/// `text` as it can stand in a message: bytes that are not UTF-8 and control characters as \xNN, cut after `most`
/// bytes.
std::string printable(std::string_view text, size_t most = 160);

/// printable(), in quotes.
std::string in_quotes(std::string_view text);

}  // namespace v0
}  // namespace gemloupe
