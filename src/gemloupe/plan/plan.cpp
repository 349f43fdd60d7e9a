#include "gemloupe/plan/plan.h"

#include <algorithm>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {
namespace {
/// "layers.99.…" names a block that is not there: nearest names would only be other blocks'.
void refuse_block(const Plan& plan, const std::string& name) {
  const bool in_tower = plan.vision && name.starts_with("vision.");
  const int64_t blocks = in_tower ? plan.vision->num_layers : plan.num_layers();
  size_t at = name.starts_with("layers.")                  ? 7
              : name.find(".layers.") == std::string::npos ? std::string::npos
                                                           : name.find(".layers.") + 8;
  if (at == std::string::npos) return;
  std::string number = name.substr(at, name.find('.', at) - at);
  if (number.empty() || number.size() > 9 ||
      !std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return;
  if (std::stoll(number) >= blocks)
    throw UnknownName("there is no '" + name + "': the " + (in_tower ? "vision tower" : "model") + " has " +
                      std::to_string(blocks) + " blocks, 0 to " + std::to_string(blocks - 1) + ".");
}

/// "….input" of a module that has none says why.
void refuse_port(const Plan& plan, const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return;
  const std::string port = name.substr(dot + 1);
  if (port != "input" && port != "inputs" && port != "output") return;
  auto found = plan.module_index.find(name.substr(0, dot));
  if (found == plan.module_index.end() || plan.module(found->second).no_ports.empty()) return;
  const Module& module = plan.module(found->second);
  if (!module.runs) throw NotInThisRun("'" + name + "' is not in this run: " + module.no_ports + ".");
  throw Absent("'" + name + "' does not exist: " + module.no_ports);
}

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
  if (auto found = absence_index.find(name); found != absence_index.end()) {
    const Absence& absence = absences[found->second];
    if (absence.of_run) throw NotInThisRun("'" + name + "' is not in this run: " + absence.reason + ".");
    throw Absent("this checkpoint has no '" + name + "': " + absence.reason);
  }
  refuse_port(*this, name);
  refuse_block(*this, name);
  refuse_unknown("value", name, row_index);
}

ModuleId Plan::find_module(const std::string& path) const {
  if (auto found = module_index.find(path); found != module_index.end()) return found->second;
  refuse_block(*this, path);
  refuse_unknown("module", path, module_index);
}

}  // namespace v0
}  // namespace gemloupe
