// Products with weights that stay a GGUF's blocks. Undefined results as in linear.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "gemloupe/ops/kernels/quantised_loops.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

/// The numbers of `bytes` [rows, bytes of a row]: [rows, width] float32, bit for bit as dequantize() makes them, or
/// those rounded to `dtype`.
at::Tensor dequantised(const at::Tensor& bytes, QuantisedFormat format, at::ScalarType dtype);

/// x · weightᵀ, x [rows, in] of float32 or bfloat16, in float32 and rounded to x's dtype at the end. For many rows the
/// weight is unpacked panel by panel, which changes no bits: a row's do not depend on how many there are.
at::Tensor quantised_linear(const at::Tensor& x, const at::Tensor& bytes, QuantisedFormat format);

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
