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

/// x · weightᵀ, x [rows, in] of float32 or bfloat16, which stays what it is. Of many rows the weight is dequantised
/// panel by panel, in x's dtype.
at::Tensor quantised_linear(const at::Tensor& x, const at::Tensor& bytes, QuantisedFormat format);

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
