// What the libtorch-facing side of every kernel asks of its tensors, and how it shares its work out.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

/// Whether a kernel may walk over `tensor`'s memory: float32 or bfloat16 on the CPU.
bool fits(const at::Tensor& tensor);

/// The tensor, or a copy, whose last axis is dense.
at::Tensor with_dense_rows(const at::Tensor& x);

/// How many pieces of work are worth a thread, each of so many operations.
inline int64_t grain(int64_t operations) {
  constexpr int64_t kWorthAThread = 1 << 15;
  return std::max<int64_t>(1, kWorthAThread / operations);
}

/// loop(begin, end) of so many columns of a product, each of so many operations, among the threads; no fewer columns at
/// a time than a tile has.
void over_columns(int64_t columns, int64_t operations, const std::function<void(int64_t, int64_t)>& loop);

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
