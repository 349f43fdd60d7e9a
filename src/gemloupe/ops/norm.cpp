#include "gemloupe/ops/norm.h"

#include <ATen/ATen.h>

namespace gemloupe {
inline namespace v0 {
namespace ops {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, Gain gain) {
  at::Tensor wide = x.to(at::kFloat);
  at::Tensor mean = wide.pow(2).mean(-1, /*keepdim=*/true) + eps;
  // Gemma 4, whose gain is the weight or none, takes a power where the others take rsqrt.
  at::Tensor normed = wide * (gain == Gain::OnePlusWeight ? at::rsqrt(mean) : at::pow(mean, -0.5));
  if (gain == Gain::OnePlusWeight) normed = normed * (1.0 + weight.to(at::kFloat));
  if (gain == Gain::Weight) normed = normed * weight.to(at::kFloat);
  return normed.to(x.scalar_type());
}

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
