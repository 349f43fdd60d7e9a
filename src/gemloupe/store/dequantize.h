// Floats out of a tensor's stored elements, bit for bit as the PyPI package gguf's `gguf.quants.dequantize` makes them.
#pragma once

#include <cstdint>

#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

/// Writes all elements of a block-quantised or floating-point tensor to `out`. Runs in the caller's thread.
void dequantize(const StoredTensor& tensor, float* out);

/// Rows are what the last dimension counts off: a tensor of shape [a, b, c] has a*b rows of c elements. Ranges can go
/// to several threads.
int64_t row_count(const StoredTensor& tensor);
void dequantize_rows(const StoredTensor& tensor, int64_t first, int64_t rows, float* out);

/// The float32 of the same value: exact. NaNs keep sign and payload.
float half_to_float(uint16_t half);
float bfloat16_to_float(uint16_t value);

}  // namespace v0
}  // namespace gemloupe
