// Attention over blocks of rows: one arithmetic, whether scores and pattern are asked for or stay in the cache. Shapes,
// and undefined results, as in ops/attention.h and linear.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

/// What a query may go to: an open_mask [batch, 1, queries, keys], or undefined for plain causality.
at::Tensor attention_scores(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& open, double scale,
                            std::optional<double> softcap);
at::Tensor attention_pattern(const at::Tensor& scores);
at::Tensor mix_values(const at::Tensor& pattern, const at::Tensor& values);

/// The three after one another, the same bits, without the tensors between.
at::Tensor attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                     const at::Tensor& open, double scale, std::optional<double> softcap);

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
