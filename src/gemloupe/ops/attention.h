// Attention, step by step as the reference's eager path.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "gemloupe/ops/parameters.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {

/// Where queries and keys of this pass stand in the whole run.
struct MaskExtent {
  int64_t queries = 0;  ///< the last ones of `seen` tokens
  int64_t keys = 0;     ///< likewise: a sliding block keeps fewer than all
  int64_t seen = 0;     ///< tokens of the run so far, padding and this pass included
};

/// Mask [batch, 1, queries, keys], true where attention may go. `padding` is the attention mask [batch, seen], 0 on
/// padding.
at::Tensor open_mask(const MaskRule& rule, const MaskExtent& extent, const at::Tensor& padding);

/// The same to be added to scores: 0 where attention may go, finfo(dtype).min elsewhere (not -inf: a padding query,
/// which may go nowhere, attends uniformly).
at::Tensor additive_mask(const at::Tensor& open, at::ScalarType dtype);

/// Whether the mask says no more than "causal": no padding, nothing cut by the window, more queries than one only
/// without a cache.
bool is_plain_causal(const MaskRule& rule, const MaskExtent& extent, const at::Tensor& padding);

/// queries · keysᵀ · scale [, softcap] + mask (additive), each rounding to the dtype. queries [batch, heads, q, dim],
/// keys [batch, kv_heads, k, dim]. Source: eager_attention_forward.
at::Tensor attention_scores(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask, double scale,
                            std::optional<double> softcap);

/// softmax over keys in float32, cast back.
at::Tensor attention_pattern(const at::Tensor& scores);

/// pattern · values, heads after positions: [batch, q, heads, dim].
at::Tensor mix_values(const at::Tensor& pattern, const at::Tensor& values);

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
