// Stored elements out of floats, bit for bit as the PyPI package gguf's `gguf.quants.quantize` makes them: the way back
// is dequantize.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gemloupe/base/dtype.h"

namespace gemloupe {
inline namespace v0 {

/// What quantize() makes: float32, float16, bfloat16 and Q8_0.
bool can_quantize_to(DType dtype);

/// Writes `elements` floats as `dtype` to `out`; they are whole rows, and a row is a whole number of blocks. A block
/// that holds a NaN has a NaN as its scale, which of them is not said. Runs in the caller's thread.
void quantize(DType dtype, const float* values, int64_t elements, std::byte* out);

/// Rounded to the nearest, ties to even; beyond the largest half is infinity. NaNs keep their sign and stay NaNs.
uint16_t float_to_half(float value);
uint16_t float_to_bfloat16(float value);

}  // namespace v0
}  // namespace gemloupe
