// Products with weights that stay blocks of few bits, the inner loops.
#pragma once

#include "gemloupe/ops/kernels/bfloat16_bits.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

/// ggml's block formats that have loops here; others are dequantised when they are loaded.
enum class QuantisedFormat { Q8_0, Q5_0, Q4_0, Q4_K, Q5_K, Q6_K };
constexpr int kQuantisedFormats = 6;

/// x [rows, in] times weight [width, in] transposed: out [rows, width]. `in` is a multiple of the block's elements; the
/// weight lies on any even address, as in a mapped file.
template <class Out>
struct QuantisedProduct {
  const float* x;
  const void* weight;
  Out* out;
  int64_t rows, in, width;
};

struct QuantisedFormatLoops {
  int64_t block_elements, block_bytes;
  /// Columns [begin, end) of the product: float32 sums of float32 products with the dequantised weights, which differ
  /// from dequantize()'s by no more than a rounding. A row's bits depend neither on the other rows nor on begin and
  /// end.
  void (*multiply_f32)(const QuantisedProduct<float>&, int64_t begin, int64_t end);
  void (*multiply_bf16)(const QuantisedProduct<Bfloat16>&, int64_t begin, int64_t end);
  /// The weights of so many whole blocks as these multiply with them.
  void (*unpack)(const void* blocks, int64_t count, float* out);
  /// So many whole blocks, bit for bit as dequantize() (store/dequantize.h), and that rounded to nearest even.
  void (*dequantise_f32)(const void* blocks, int64_t count, float* out);
  void (*dequantise_bf16)(const void* blocks, int64_t count, Bfloat16* out);
};

struct QuantisedLoops {
  QuantisedFormatLoops formats[kQuantisedFormats];
  const QuantisedFormatLoops& of(QuantisedFormat format) const { return formats[static_cast<int>(format)]; }
};

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
