// Look-up, projection, activation, caps.
#pragma once

#include <ATen/core/Tensor.h>

#include "gemloupe/ops/weight.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {

/// table[ids] · scale in `dtype`, the scale rounded to it first. Source: Gemma3TextScaledWordEmbedding.forward.
at::Tensor embed(const at::Tensor& ids, const Weight& table, double scale, at::ScalarType dtype);

/// x · weightᵀ [+ bias]; an undefined bias is none.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// GELU's tanh approximation.
at::Tensor gelu_tanh(const at::Tensor& x);

/// cap · tanh(x / cap), each operation rounding to x's dtype.
at::Tensor softcap(const at::Tensor& x, double cap);

/// softmax in float32 of the last row: logits [batch, seq, vocab] -> [batch, vocab].
at::Tensor last_probabilities(const at::Tensor& logits);

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
