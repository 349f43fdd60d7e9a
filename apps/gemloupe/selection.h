// Names and globs of values, as they are typed.
#pragma once

#include <string>
#include <vector>

#include "gemloupe/plan/plan.h"

namespace gemloupe::cli {

/// The rows that a name or a glob means. A glob means the standard values that it matches; where it matches none of
/// them, the modules' inputs and outputs. Errors: UnknownName, Absent.
std::vector<RowId> rows_of(const Plan& plan, const std::string& name_or_glob);

bool is_glob(const std::string& text);

}  // namespace gemloupe::cli
