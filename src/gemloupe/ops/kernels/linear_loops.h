// x · weightᵀ, the inner loops.
#pragma once

#include "gemloupe/ops/kernels/bfloat16_bits.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

/// x [rows, in] times weight [width, in] transposed: out [rows, width].
template <class X, class W, class Out>
struct Product {
  const X* x;
  const W* weight;
  Out* out;
  int64_t rows, in, width;
};

struct LinearLoops {
  /// The rows of x up to which `bf16` is the one to take.
  int64_t few_rows;
  /// Columns [begin, end) of the product.
  void (*bf16)(const Product<Bfloat16, Bfloat16, Bfloat16>&, int64_t begin, int64_t end);
  /// For more rows, which are widened and as `split_pairs` gives them. None where libtorch's product is faster: it is
  /// where there are instructions for bfloat16, and ten times slower than this where there are none.
  void (*wide_bf16)(const Product<float, Bfloat16, Bfloat16>&, int64_t begin, int64_t end);
  void (*f32)(const Product<float, float, float>&, int64_t begin, int64_t end);
  void (*f32_to_bf16)(const Product<float, float, Bfloat16>&, int64_t begin, int64_t end);
  /// x as `split_pairs` gives its rows.
  void (*f32_bf16)(const Product<float, Bfloat16, float>&, int64_t begin, int64_t end);
  /// `count` floats in another order, that in which halves of registers of bfloat16 pairs are widened; zeros behind
  /// them, up to a multiple of `pairs`.
  void (*split_pairs)(const float* from, int64_t count, float* to);
  int64_t pairs;
};

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
