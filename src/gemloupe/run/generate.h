// Token after token, with a key/value cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "gemloupe/run/trace.h"

namespace gemloupe {
inline namespace v0 {

struct GenerateOptions {
  int64_t max_new_tokens = 20;
  std::set<int64_t> end_tokens;  ///< a row that has made one of these is done
  int64_t pad = 0;               ///< what done rows are filled with
  /// Called with each step's tokens, one a row; false ends the generation.
  std::function<bool(const std::vector<int64_t>&)> on_step;
};

/// Greedy: the ids [batch, prompt + new], as transformers' generate returns them.
at::Tensor generate(const std::shared_ptr<const Plan>& plan, const std::shared_ptr<const Weights>& weights,
                    const PassInputs& prompt, bool eager, const GenerateOptions& options);

}  // namespace v0
}  // namespace gemloupe
