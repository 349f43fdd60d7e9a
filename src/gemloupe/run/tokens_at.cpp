#include "gemloupe/run/tokens_at.h"

#include <ATen/ATen.h>

#include <string>

#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {

at::Tensor token_columns(const at::Tensor& mask, int64_t index) {
  const at::Tensor real = mask.to(at::kCPU) != 0, counts = real.sum(-1);
  const at::Tensor ranks = index < 0 ? counts + index : at::full_like(counts, index);
  const at::Tensor outside = (ranks < 0) | (ranks >= counts);
  if (outside.any().item<bool>()) {
    const int64_t row = outside.nonzero()[0].item<int64_t>();
    throw BadOption("there is no token " + std::to_string(index) + " in prompt " + std::to_string(row) +
                    ", which has " + std::to_string(counts[row].item<int64_t>()) + " tokens.");
  }
  return (real & (real.cumsum(-1) == ranks.unsqueeze(1) + 1)).to(at::kInt).argmax(-1).to(mask.device());
}

at::Tensor at_token(const at::Tensor& value, const at::Tensor& columns) {
  return value.index({at::arange(columns.size(0), columns.options()), columns});
}

}  // namespace v0
}  // namespace gemloupe
