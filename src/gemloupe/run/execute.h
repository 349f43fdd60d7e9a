// From an op of the plan to the function of ops/ that does it.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "gemloupe/ops/weight.h"
#include "gemloupe/plan/op.h"
#include "gemloupe/run/kv_cache.h"

namespace gemloupe {
inline namespace v0 {

/// What a pass knows beside its values.
struct PassState {
  at::Tensor padding;  ///< attention mask of the whole run [batch, seen], cached tokens included
  int64_t tokens = 0;  ///< of this pass
  int64_t seen = 0;    ///< of the whole run, this pass included
  KvCache* cache = nullptr;
  at::ScalarType dtype = at::kFloat;  ///< of the values
  bool eager = false;                 ///< the reference's operations, nothing left out
};

/// `inputs` and `weights` are in the op's order, `outputs` are filled in.
void execute(const Op& op, std::span<const at::Tensor> inputs, std::span<const ops::Weight> weights,
             std::span<at::Tensor> outputs, const PassState& state);

}  // namespace v0
}  // namespace gemloupe
