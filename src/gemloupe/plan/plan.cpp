#include "gemloupe/plan/plan.h"

#include <algorithm>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {
namespace {
template <class Index>
[[noreturn]] void refuse_unknown(const std::string& kind, const std::string& name, const Index& index) {
  std::vector<std::string> known;
  for (const auto& entry : index) known.push_back(entry.first);
  std::sort(known.begin(), known.end());
  std::vector<std::string> near = nearest(name, known);
  throw UnknownName("there is no " + kind + " '" + name + "'" +
                    (near.empty() ? std::string(".") : ": did you mean " + quoted_list(near) + "?") +
                    " print(model) and support() list what there is.");
}
}  // namespace

RowId Plan::find_row(const std::string& name) const {
  if (auto found = row_index.find(name); found != row_index.end()) return found->second;
  if (auto found = absence_index.find(name); found != absence_index.end())
    throw Absent("this checkpoint has no '" + name + "': " + found->second);
  refuse_unknown("value", name, row_index);
}

ModuleId Plan::find_module(const std::string& path) const {
  if (auto found = module_index.find(path); found != module_index.end()) return found->second;
  refuse_unknown("module", path, module_index);
}

}  // namespace v0
}  // namespace gemloupe
