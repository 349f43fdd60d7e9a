// A parameter as a run holds it, which need not be of the run's dtype: numbers, or a GGUF's blocks as they lie in the
// file.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "gemloupe/ops/kernels/quantised_loops.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {

struct Weight {
  at::Tensor numbers;  ///< of blocks: their bytes [rows, bytes of a row]
  std::optional<kernels::QuantisedFormat> blocks;

  /// All of it as numbers of that dtype: itself where it has it already.
  at::Tensor as(at::ScalarType dtype) const;
  /// The same of some rows [n, width], which is all that is read of it.
  at::Tensor rows_as(const at::Tensor& ids, at::ScalarType dtype) const;
  bool requires_grad() const { return numbers.requires_grad(); }
};

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
