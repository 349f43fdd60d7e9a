// Element-wise work, the inner loops. All compute in float32, and round to T where the separate operations would.
#pragma once

#include "gemloupe/ops/kernels/bfloat16_bits.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

/// Root-mean-square norms of dense rows.
template <class T, class W>
struct Norm {
  const T* x;
  const W* weight;    ///< or null
  const T* residual;  ///< to which the normed rows are added, or null
  T* out;
  int64_t width;
  float eps, offset;  ///< the offset is added to the weight
};

/// Rotary embedding of x, [., second, third, dim] of any strides with a dense last axis, into dense rows. cos and sin
/// have stride 0 where one row of them serves several of x.
template <class T>
struct Rotation {
  const T *x, *cos, *sin;
  T* out;
  int64_t second, third, dim;
  int64_t x_strides[3], table_strides[3];
};

template <class T>
struct ElementwiseLoopsOf {
  /// Rows [begin, end).
  void (*norm)(const Norm<T, T>&, int64_t begin, int64_t end);
  void (*norm_bf16_weight)(const Norm<T, Bfloat16>&, int64_t begin, int64_t end);
  void (*rotate)(const Rotation<T>&, int64_t begin, int64_t end);
  /// GELU's tanh approximation, times `up` where that is not null.
  void (*gelu)(const T* x, const T* up, T* out, int64_t count);
  void (*softcap)(const T* x, float cap, T* out, int64_t count);
};

struct ElementwiseLoops {
  ElementwiseLoopsOf<Bfloat16> bf16;
  ElementwiseLoopsOf<float> f32;
};

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
