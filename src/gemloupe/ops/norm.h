// Root-mean-square norms.
#pragma once

#include <ATen/core/Tensor.h>

#include "gemloupe/ops/parameters.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {

/// x · rsqrt(mean(x², last axis) + eps) in float32, times 1 + weight (or weight, or nothing) in float32, cast to x's
/// dtype once at the end. Source: Gemma3RMSNorm.forward.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, Gain gain);

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
