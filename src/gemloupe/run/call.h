// A module applied to a tensor beside any run: no cursor moves, nothing is recorded by a trace, edits do not count.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "gemloupe/plan/plan.h"
#include "gemloupe/run/weights.h"

namespace gemloupe {
inline namespace v0 {

/// What the module returns when it is called with `input` in the place of its first argument: the leaves of its result
/// in order, undefined where it has none. Attention sees what a causal run of input's tokens sees, at `positions`
/// [seq] or [batch, seq], 0 and up if not given. Autograd is recorded as by any operation. Errors: CannotCall where it
/// needs what no argument brings (a block of Gemma 4 that borrows keys), BadValue for a tensor that does not fit.
std::vector<at::Tensor> call_module(const Plan& plan, const Weights& weights, ModuleId module, const at::Tensor& input,
                                    const std::optional<at::Tensor>& positions, bool eager);

}  // namespace v0
}  // namespace gemloupe
