// Products with a weight. A sum runs through a row front to back whatever else is computed: a row's bits depend neither
// on the other rows nor on the number of threads.
//
// Each function of kernels/ gives an undefined tensor where these tensors are not what it is for; then ATen does it.
// None records for autograd.
#pragma once

#include <ATen/core/Tensor.h>

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

/// x · weightᵀ, x [rows, in], weight [out, in]. bfloat16: up to 24 rows, beyond which ATen's is faster. float32, any
/// rows, with a float32 or a bfloat16 weight: the latter is widened in registers, which loses nothing.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight);

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
