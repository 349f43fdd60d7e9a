#include "gemloupe/ops/rotary.h"

#include <ATen/ATen.h>

namespace gemloupe {
inline namespace v0 {
namespace ops {

at::Tensor rotary_frequencies(const RotaryFrequencies& f, const at::Device& device) {
  const int64_t pairs = f.head_dim / 2, turning = f.turning.value_or(pairs);
  at::Tensor exponents = at::arange(0, 2 * turning, 2, at::TensorOptions().dtype(at::kFloat)) / f.head_dim;
  // Python's 1.0 / t is reciprocal(t) · 1.0.
  at::Tensor frequencies = at::pow(at::Scalar(f.theta), exponents).reciprocal() * 1.0;
  if (turning < pairs) frequencies = at::cat({frequencies, at::zeros({pairs - turning}, frequencies.options())});
  if (f.linear_factor != 1.0) frequencies = frequencies / f.linear_factor;
  return frequencies.to(device);
}

std::pair<at::Tensor, at::Tensor> rotary_table(const at::Tensor& positions, const at::Tensor& frequencies,
                                               at::ScalarType dtype) {
  at::Tensor angles = positions.unsqueeze(-1).to(at::kFloat) * frequencies;
  angles = at::cat({angles, angles}, -1);
  return {angles.cos().to(dtype), angles.sin().to(dtype)};
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int64_t head_axis) {
  const int64_t half = x.size(-1) / 2;
  at::Tensor turned = at::cat({-x.narrow(-1, half, x.size(-1) - half), x.narrow(-1, 0, half)}, -1);
  return x * cos.unsqueeze(head_axis) + turned * sin.unsqueeze(head_axis);
}

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
