#include "gemloupe/ops/kernels/linear.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "gemloupe/ops/kernels/table.h"
#include "gemloupe/ops/kernels/walk.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

template <class X, class W, class Out, class Loop>
at::Tensor multiplied(const at::Tensor& x, const at::Tensor& weight, at::Tensor out, Loop loop) {
  const Product<X, W, Out> product{static_cast<const X*>(x.const_data_ptr()),
                                   static_cast<const W*>(weight.const_data_ptr()),
                                   static_cast<Out*>(out.mutable_data_ptr()),
                                   out.size(0),
                                   weight.size(1),
                                   weight.size(0)};
  over_columns(product.width, product.rows * product.in,
               [&](int64_t begin, int64_t end) { loop(product, begin, end); });
  return out;
}

/// x in the order in which the halves of bfloat16 pairs are widened.
at::Tensor split(const at::Tensor& x, const LinearLoops& loops) {
  const int64_t rows = x.size(0), in = x.size(1), padded = (in + loops.pairs - 1) / loops.pairs * loops.pairs;
  at::Tensor out = at::empty({rows, padded}, x.options());
  const auto* from = x.const_data_ptr<float>();
  auto* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, rows, grain(in), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) loops.split_pairs(from + row * in, in, to + row * padded);
  });
  return out;
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight) {
  if (!fits(x) || !fits(weight) || x.dim() != 2 || weight.dim() != 2 || !weight.is_contiguous()) return {};
  const int64_t rows = x.size(0), in = weight.size(1);
  if (rows < 1 || in < 1 || weight.size(0) < 1 || x.size(1) != in) return {};
  const bool narrow = x.scalar_type() == at::kBFloat16, narrow_weight = weight.scalar_type() == at::kBFloat16;
  const LinearLoops& loops = table().linear;
  const bool few = rows <= loops.few_rows;
  if (narrow && (!narrow_weight || (!few && !loops.wide_bf16))) return {};
  const at::Tensor dense = x.contiguous();
  at::Tensor out = at::empty({rows, weight.size(0)}, x.options());
  if (narrow && few) return multiplied<Bfloat16, Bfloat16, Bfloat16>(dense, weight, out, loops.bf16);
  if (narrow)
    return multiplied<float, Bfloat16, Bfloat16>(split(dense.to(at::kFloat), loops), weight, out, loops.wide_bf16);
  if (narrow_weight) return multiplied<float, Bfloat16, float>(split(dense, loops), weight, out, loops.f32_bf16);
  return multiplied<float, float, float>(dense, weight, out, loops.f32);
}

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
