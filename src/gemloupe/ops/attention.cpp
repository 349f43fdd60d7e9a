#include "gemloupe/ops/attention.h"

#include <ATen/ATen.h>

#include <limits>

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace {

/// [batch, kv_heads, seq, dim] as [batch, heads, seq, dim]: each key/value head serves heads / kv_heads query heads.
at::Tensor repeat_heads(const at::Tensor& x, int64_t heads) {
  const int64_t times = heads / x.size(1);
  if (times == 1) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), times, x.size(2), x.size(3)})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

double lowest(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return std::numeric_limits<float>::lowest();
    case at::kBFloat16:
      return std::numeric_limits<at::BFloat16>::lowest();
    case at::kHalf:
      return std::numeric_limits<at::Half>::lowest();
    default:
      return std::numeric_limits<double>::lowest();
  }
}

}  // namespace

at::Tensor open_mask(const MaskRule& rule, const MaskExtent& extent, const at::Tensor& padding) {
  auto options = at::TensorOptions().dtype(at::kLong).device(padding.device());
  at::Tensor queries = at::arange(extent.seen - extent.queries, extent.seen, options).unsqueeze(1);
  at::Tensor keys = at::arange(extent.seen - extent.keys, extent.seen, options).unsqueeze(0);
  at::Tensor distance = queries - keys;
  at::Tensor open = rule.bidirectional ? at::ones_like(distance, at::kBool) : distance >= 0;
  if (rule.window) {
    const int64_t reach = *rule.window + (rule.bidirectional && rule.far_end ? 1 : 0);
    open = open & (distance < reach);
    if (rule.bidirectional) open = open & (distance > -reach);
  }
  at::Tensor attended = padding.narrow(1, extent.seen - extent.keys, extent.keys).to(at::kBool);
  return open.unsqueeze(0).unsqueeze(0) & attended.unsqueeze(1).unsqueeze(1);
}

at::Tensor additive_mask(const at::Tensor& open, at::ScalarType dtype) {
  if (open.is_meta()) return at::empty(open.sizes(), open.options().dtype(dtype));  // shapes alone
  at::Tensor zero = at::zeros({}, at::TensorOptions().dtype(dtype).device(open.device()));
  return at::where(open, zero, at::full_like(zero, lowest(dtype)));
}

bool is_plain_causal(const MaskRule& rule, const MaskExtent& extent, const at::Tensor& padding) {
  if (rule.bidirectional) return false;
  if (rule.window && extent.keys > *rule.window) return false;
  if (extent.queries != 1 && extent.queries != extent.keys) return false;
  return padding.narrow(1, extent.seen - extent.keys, extent.keys).all().item<bool>();
}

at::Tensor attention_scores(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask, double scale,
                            std::optional<double> softcap) {
  at::Tensor scores = at::matmul(queries, repeat_heads(keys, queries.size(1)).transpose(2, 3)) * scale;
  if (softcap) scores = at::tanh(scores / *softcap) * *softcap;
  return scores + mask;
}

at::Tensor attention_pattern(const at::Tensor& scores) {
  return at::softmax(scores, -1, at::kFloat).to(scores.scalar_type());
}

at::Tensor mix_values(const at::Tensor& pattern, const at::Tensor& values) {
  return at::matmul(pattern, repeat_heads(values, pattern.size(1))).transpose(1, 2).contiguous();
}

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
