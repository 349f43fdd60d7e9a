#include "gemloupe/ops/experts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace {

/// How many rows each expert has, by the sorted ids of all slots.
std::vector<int64_t> rows_per_expert(const at::Tensor& sorted, int64_t experts) {
  std::vector<int64_t> rows(static_cast<size_t>(experts), 0);
  if (sorted.is_meta()) {  // shapes alone: they do not depend on who computes what
    rows[0] = sorted.numel();
    return rows;
  }
  at::Tensor ids = sorted.to(at::kCPU).contiguous();
  const auto* first = ids.const_data_ptr<int64_t>();
  for (const auto* id = first; id != first + ids.numel(); ++id) {
    if (*id < 0 || *id >= experts)
      throw BadValue("expert_indices holds " + std::to_string(*id) + ", but the experts are 0 to " +
                     std::to_string(experts - 1) + ".");
    ++rows[static_cast<size_t>(*id)];
  }
  return rows;
}

/// rows · W[expert]ᵀ, each expert's rows as one product.
at::Tensor grouped_linear(const at::Tensor& rows, const at::Tensor& weights, const std::vector<int64_t>& counts) {
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    if (!counts[expert]) continue;
    parts.push_back(at::mm(rows.narrow(0, first, counts[expert]), weights[static_cast<int64_t>(expert)].t()));
    first += counts[expert];
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

}  // namespace

at::Tensor router_probabilities(const at::Tensor& logits) {
  return at::softmax(logits, -1, at::kFloat);
}

std::pair<at::Tensor, at::Tensor> route(const at::Tensor& probabilities, const at::Tensor& expert_scale,
                                        int64_t top_k) {
  auto [weights, indices] = at::topk(probabilities, top_k, -1);
  weights = weights / weights.sum(-1, /*keepdim=*/true);
  // The product of a float32 tensor and one of the model's dtype is float32.
  return {weights * expert_scale.index({indices}), indices};
}

std::pair<at::Tensor, at::Tensor> experts_gate_up(const at::Tensor& x, const at::Tensor& indices,
                                                  const at::Tensor& gate_up) {
  auto [sorted, order] = indices.reshape({-1}).sort();
  at::Tensor rows = x.reshape({-1, x.size(-1)}).index({at::div(order, indices.size(-1), "floor")});
  auto halves = grouped_linear(rows, gate_up, rows_per_expert(sorted, gate_up.size(0))).chunk(2, -1);
  return {halves[0], halves[1]};
}

at::Tensor experts_down(const at::Tensor& neurons, const at::Tensor& indices, const at::Tensor& weights,
                        const at::Tensor& down) {
  auto [sorted, order] = indices.reshape({-1}).sort();
  at::Tensor out = grouped_linear(neurons, down, rows_per_expert(sorted, down.size(0)));
  out = out * weights.reshape({-1}).index({order}).unsqueeze(-1);
  at::Tensor back = at::empty_like(order).index_copy_(0, order, at::arange(order.size(0), order.options()));
  auto sizes = indices.sizes().vec();
  sizes.push_back(down.size(1));
  return out.index({back}).view(sizes);
}

at::Tensor sum_slots(const at::Tensor& slots, at::ScalarType dtype) {
  return slots.sum(-2).to(dtype);
}

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
