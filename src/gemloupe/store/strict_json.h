// JSON from files that nobody vouches for: a clear error for whatever is wrong with it.
#pragma once

#include <filesystem>
#include <string_view>

#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

/// Parses `text`, in time linear in its length whatever it holds. Refused as BadCheckpoint, with line and column:
/// broken JSON or UTF-8, a key twice in one object, nesting deeper than 64. `what` says which text of `path` it is
/// ("the header"). The value of `skip`, a key of the outermost object, is left out.
json parse_json(std::string_view text, const std::filesystem::path& path, std::string_view what = {},
                std::string_view skip = {});

/// The same for a whole file. Errors: NotFound too.
json read_json(const std::filesystem::path& path, std::string_view skip = {});

}  // namespace v0
}  // namespace gemloupe
