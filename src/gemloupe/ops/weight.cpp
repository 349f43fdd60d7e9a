#include "gemloupe/ops/weight.h"

#include <ATen/ATen.h>

#include "gemloupe/ops/kernels/quantised.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {

at::Tensor Weight::as(at::ScalarType dtype) const {
  return blocks ? kernels::dequantised(numbers, *blocks, dtype) : numbers.to(dtype);
}

at::Tensor Weight::rows_as(const at::Tensor& ids, at::ScalarType dtype) const {
  const at::Tensor rows = at::embedding(numbers, ids.reshape({-1}));
  auto sizes = ids.sizes().vec();
  const at::Tensor chosen = Weight{rows, blocks}.as(dtype);
  sizes.push_back(chosen.size(1));
  return chosen.view(sizes);
}

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
