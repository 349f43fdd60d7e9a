// Element-wise work, fused, in bfloat16 or float32: computed in float32, rounded where the separate operations round.
// Sums of norms run in another order than ATen's.
//
// As in linear.h: an undefined tensor where these tensors are not what it is for; none records for autograd; a row's
// bits depend neither on the other rows nor on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include "gemloupe/ops/parameters.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

/// ops::rms_norm. The weight has x's dtype, or is bfloat16.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, Gain gain);

/// residual + rms_norm(x, …), bit for bit.
at::Tensor norm_add(const at::Tensor& x, const at::Tensor& weight, double eps, Gain gain, const at::Tensor& residual);

/// GELU's tanh approximation.
at::Tensor gelu_tanh(const at::Tensor& x);

/// gelu_tanh(gate) · up, bit for bit.
at::Tensor geglu(const at::Tensor& gate, const at::Tensor& up);

/// ops::rotate bit for bit, into a contiguous tensor. cos and sin are [batch or 1, seq, head_dim] of x's dtype; the
/// head's dimensions are even in number.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int64_t head_axis = 1);

/// cap · tanh(x / cap), rounded once, which is more exact than ops::softcap.
at::Tensor softcap(const at::Tensor& x, double cap);

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
