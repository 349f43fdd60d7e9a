// Our own kernels, for bfloat16 on CPUs that have AVX-512 with bfloat16. They round once at the end, as ATen's do, but
// sum in another order: a run that must have the reference's bits does not use them.
//
// Each gives an undefined tensor where this machine or these tensors are not what it is for; then ATen does it. None
// records for autograd. A row's bits depend neither on the other rows nor on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include "gemloupe/ops/parameters.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

/// x · weightᵀ for up to four rows, x [rows, in], weight [out, in]: as fast as memory gives the weight, each element of
/// which is used once a row.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight);

/// ops::rms_norm in two passes over a row that is in the cache.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, Gain gain);

/// GELU's tanh approximation.
at::Tensor gelu_tanh(const at::Tensor& x);

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
