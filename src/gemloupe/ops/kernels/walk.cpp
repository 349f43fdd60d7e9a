#include "gemloupe/ops/kernels/walk.h"

#include <ATen/Parallel.h>

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

bool fits(const at::Tensor& tensor) {
  // No storage: a wrapper, of vmap say.
  return tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.has_storage() &&
         !tensor.is_neg() && (tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kFloat);
}

at::Tensor with_dense_rows(const at::Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) == 1 ? x : x.contiguous();
}

void over_columns(int64_t columns, int64_t operations, const std::function<void(int64_t, int64_t)>& loop) {
  at::parallel_for(0, columns, std::max<int64_t>(8, grain(operations)), loop);
}

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
