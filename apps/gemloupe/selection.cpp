#include "selection.h"

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"

namespace gemloupe::cli {

bool is_glob(const std::string& text) {
  return text.find_first_of("*?") != std::string::npos;
}

std::vector<RowId> rows_of(const Plan& plan, const std::string& name) {
  if (!is_glob(name)) return {plan.find_row(name)};
  std::vector<RowId> values, ports;
  for (size_t id = 0; id < plan.rows.size(); ++id)
    if (glob_matches(name, plan.rows[id].name)) (plan.rows[id].spec ? values : ports).push_back(static_cast<RowId>(id));
  if (!values.empty()) return values;
  if (!ports.empty()) return ports;
  for (const Absence& absence : plan.absences)
    if (glob_matches(name, absence.name)) plan.find_row(absence.name);  // says why it is not there
  throw UnknownName(
      "no value matches '" + name +
      "'. In a glob * stands for any characters but a dot, ** for any at all; `gemloupe show MODEL` lists "
      "what there is.");
}

}  // namespace gemloupe::cli
