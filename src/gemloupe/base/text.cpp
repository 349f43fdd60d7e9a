#include "gemloupe/base/text.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace gemloupe {
inline namespace v0 {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    if (at < text.size() && text[at] != separator) continue;
    parts.emplace_back(text.substr(from, at - from));
    from = at + 1;
  }
  return parts;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i) out += separator;
    out += parts[i];
  }
  return out;
}

bool starts_with_any(std::string_view text, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& p) { return text.starts_with(p); });
}

// Walks all places of the pattern at once that the text so far can have reached: no pattern makes it slow.
bool glob_matches(std::string_view pattern, std::string_view text) {
  std::vector<char> here(pattern.size() + 1), next(pattern.size() + 1);
  auto is_any = [&](size_t at) { return pattern.substr(at).starts_with("**"); };
  auto pass_stars = [&](std::vector<char>& reached) {
    for (size_t at = 0; at < pattern.size(); ++at)
      if (reached[at] && pattern[at] == '*') reached[at + (is_any(at) ? 2 : 1)] = true;
  };
  here[0] = true;
  pass_stars(here);
  for (char c : text) {
    std::fill(next.begin(), next.end(), false);
    for (size_t at = 0; at < pattern.size(); ++at) {
      if (!here[at]) continue;
      if (pattern[at] == '*')
        next[at] = next[at] || c != '.' || is_any(at);
      else if (pattern[at] == '?' || pattern[at] == c)
        next[at + 1] = true;
    }
    pass_stars(next);
    here.swap(next);
  }
  return here[pattern.size()];
}

namespace {
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t up = row[j];
      row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row[b.size()];
}
}  // namespace

std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates, size_t most) {
  std::vector<std::pair<size_t, std::string>> ranked;
  name = name.substr(0, 200);
  for (const std::string& candidate : candidates) {
    size_t distance = edit_distance(name, candidate);
    bool contains = name.size() >= 3 && candidate.find(name) != std::string::npos;
    if (contains || distance <= std::max<size_t>(2, name.size() / 3)) ranked.emplace_back(distance, candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (auto& [distance, candidate] : ranked) {
    if (out.size() == most) break;
    if (std::find(out.begin(), out.end(), candidate) == out.end()) out.push_back(candidate);
  }
  return out;
}

std::string quoted_list(const std::vector<std::string>& words, std::string_view last_separator) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i) out += i + 1 == words.size() ? last_separator : std::string_view(", ");
    out += "'" + words[i] + "'";
  }
  return out;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (int64_t size : shape) parts.push_back(std::to_string(size));
  return "[" + join(parts, ", ") + "]";
}

}  // namespace v0
}  // namespace gemloupe
