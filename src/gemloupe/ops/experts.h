// A mixture of experts: which experts a token goes to, and what they make of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace gemloupe {
inline namespace v0 {
namespace ops {

/// softmax over experts in float32: logits [batch, seq, experts], in any dtype.
at::Tensor router_probabilities(const at::Tensor& logits);

/// The `top_k` most probable experts of each token, their probabilities renormalised to sum to one, then times the
/// scale of each expert [experts]: weights float32 and indices int64, both [batch, seq, top_k]. Ties are broken as
/// at::topk breaks them. Source: Gemma4TextRouter.forward.
std::pair<at::Tensor, at::Tensor> route(const at::Tensor& probabilities, const at::Tensor& expert_scale, int64_t top_k);

/// Each token's row for each of its slots, sorted by expert, times that expert's gate and up projection: x [batch, seq,
/// hidden], indices [batch, seq, top_k], gate_up [experts, 2 · inner, hidden] -> gate and up, [batch · seq · top_k,
/// inner] each. Only the weights of experts that are chosen are touched. Errors: BadValue for an index that is no
/// expert. Source: grouped_mm_experts_forward, the reference's default.
std::pair<at::Tensor, at::Tensor> experts_gate_up(const at::Tensor& x, const at::Tensor& indices,
                                                  const at::Tensor& gate_up);

/// Those rows' neurons times each expert's down projection [experts, hidden, inner], times the slot's weight, back in
/// the order of tokens and slots: [batch, seq, top_k, hidden] in the dtype of `weights`, float32.
at::Tensor experts_down(const at::Tensor& neurons, const at::Tensor& indices, const at::Tensor& weights,
                        const at::Tensor& down);

/// The sum over slots in the weights' dtype, cast to `dtype` at the end: [batch, seq, hidden].
at::Tensor sum_slots(const at::Tensor& slots, at::ScalarType dtype);

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
