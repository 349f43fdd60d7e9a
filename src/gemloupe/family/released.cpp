#include "gemloupe/family/released.h"

#include <algorithm>

#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// An entry of released.json each.
constexpr const char* kEntries[] = {
#include "gemloupe/family/released.inc"
};

Released parse(const char* entry) {
  json parsed = json::parse(entry);
  return {parsed["name"].get<std::string>(), parsed["hub"].get<std::vector<std::string>>(), parsed["config"]};
}

}  // namespace

const std::vector<Released>& released() {
  static const std::vector<Released> all = [] {
    std::vector<Released> parsed;
    for (const char* entry : kEntries) parsed.push_back(parse(entry));
    return parsed;
  }();
  return all;
}

const Released* find_released(const std::string& name) {
  for (const Released& one : released())
    if (one.name == name || std::find(one.hub_ids.begin(), one.hub_ids.end(), name) != one.hub_ids.end()) return &one;
  return nullptr;
}

std::string near_released(const std::string& name) {
  std::vector<std::string> known;
  for (const Released& one : released()) {
    known.push_back(one.name);
    known.insert(known.end(), one.hub_ids.begin(), one.hub_ids.end());
  }
  return quoted_list(nearest(name, known));
}

}  // namespace v0
}  // namespace gemloupe
