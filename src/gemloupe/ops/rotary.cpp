#include "gemloupe/ops/rotary.h"

#include <ATen/ATen.h>

namespace gemloupe {
inline namespace v0 {
namespace ops {

at::Tensor rotary_frequencies(const RotaryFrequencies& f, const at::Device& device) {
  at::Tensor exponents = at::arange(0, f.head_dim, 2, at::TensorOptions().dtype(at::kFloat)) / f.head_dim;
  // Python's 1.0 / t is reciprocal(t) · 1.0.
  at::Tensor frequencies = at::pow(at::Scalar(f.theta), exponents).reciprocal() * 1.0;
  if (f.linear_factor != 1.0) frequencies = frequencies / f.linear_factor;
  return frequencies.to(device);
}

std::pair<at::Tensor, at::Tensor> rotary_table(const at::Tensor& positions, const at::Tensor& frequencies,
                                               at::ScalarType dtype) {
  at::Tensor angles = positions.unsqueeze(-1).to(at::kFloat) * frequencies;
  angles = at::cat({angles, angles}, -1);
  return {angles.cos().to(dtype), angles.sin().to(dtype)};
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  at::Tensor turned = at::cat({-x.narrow(-1, half, x.size(-1) - half), x.narrow(-1, 0, half)}, -1);
  return x * cos.unsqueeze(1) + turned * sin.unsqueeze(1);
}

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
