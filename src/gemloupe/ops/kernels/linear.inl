// x · weightᵀ: which of the loops for it.
#pragma once

#include "gemloupe/ops/kernels/linear_loops.h"
#include "gemloupe/ops/kernels/panel.inl"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

/// Rows of x from which it takes less time to widen the weight first.
constexpr int64_t kManyRows = 6;

template <class W, class Out>
void multiply_wide(const Product<float, W, Out>& p, int64_t begin, int64_t end) {
  if (kLanes == 8 && p.rows >= kManyRows)
    multiply_panels(p, begin, end);
  else
    multiply(p, begin, end);
}

void split_pairs(const float* from, int64_t count, float* to) {
  for (int64_t at = 0; at < count; at += kPairs, to += kPairs)
    for (int64_t i = 0; i < kLanes; ++i) {
      const int64_t first = at + 2 * i;
      to[i] = first < count ? from[first] : 0;
      to[i + kLanes] = first + 1 < count ? from[first + 1] : 0;
    }
}

constexpr LinearLoops kLinearLoops = {
#if defined(__AVX512BF16__)
    24,
    multiply<Bfloat16, Bfloat16, Bfloat16>,
    nullptr,
#else
    kManyRows - 1,
    multiply<Bfloat16, Bfloat16, Bfloat16>,
    multiply_wide<Bfloat16, Bfloat16>,
#endif
    multiply_wide<float, float>,
    multiply_wide<float, Bfloat16>,
    multiply_wide<Bfloat16, float>,
    split_pairs,
    kPairs};

}  // namespace
}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
