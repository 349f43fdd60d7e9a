// Rotary position embedding.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "gemloupe/ops/parameters.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {

/// Radians per position of each pair of dimensions, float32 [head_dim / 2].
at::Tensor rotary_frequencies(const RotaryFrequencies& frequencies, const at::Device& device);

/// cos and sin of the angles at `positions` [batch, seq], each [batch, seq, head_dim] in `dtype`; angles in float32.
/// Source: Gemma3RotaryEmbedding.forward.
std::pair<at::Tensor, at::Tensor> rotary_table(const at::Tensor& positions, const at::Tensor& frequencies,
                                               at::ScalarType dtype);

/// x · cos + rotate_half(x) · sin; each product and the sum round to x's dtype. x is [batch, heads, seq, head_dim], or
/// [batch, seq, heads, head_dim] where `head_axis` is 2.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int64_t head_axis = 1);

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
