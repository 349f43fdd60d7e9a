// The one style and the one script of our pages, and the frame around a page's body.
#pragma once

#include <string>
#include <string_view>

namespace gemloupe {
inline namespace v0 {

std::string html_page(std::string_view title, std::string_view body, bool has_heat_map);
/// To be put into another page: the style reaches nothing outside.
std::string html_fragment(std::string_view body, bool has_heat_map);

/// For text and for attributes in double quotes.
std::string html_escaped(std::string_view text);

/// For JSON inside <script type="application/json">.
std::string script_escaped(std::string_view json_text);

}  // namespace v0
}  // namespace gemloupe
