// What can be read and written in a checkpoint: its values by host, its sizes, its config, and what to know of it.
#pragma once

#include "gemloupe/plan/plan.h"
#include "gemloupe/report/document.h"

namespace gemloupe {
inline namespace v0 {

Document support(const Plan& plan);

/// "0-4, 6": layers as people write them.
std::string ranges_text(const std::vector<int>& numbers);

}  // namespace v0
}  // namespace gemloupe
