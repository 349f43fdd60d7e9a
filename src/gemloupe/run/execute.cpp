#include "gemloupe/run/execute.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <mutex>

#include "gemloupe/ops/attention.h"
#include "gemloupe/ops/basic.h"
#include "gemloupe/ops/experts.h"
#include "gemloupe/ops/kernels/bfloat16.h"
#include "gemloupe/ops/norm.h"
#include "gemloupe/ops/rotary.h"

namespace gemloupe {
inline namespace v0 {
namespace {

struct Executor {
  std::span<const at::Tensor> in, weights;
  std::span<at::Tensor> out;
  const PassState& state;

  /// Whether our own kernels may be used: they have not the reference's bits, and record nothing for autograd.
  bool own_kernels() const { return !state.eager && !at::GradMode::is_enabled(); }

  ops::MaskExtent extent(const MaskRule& rule) const {
    int64_t keys = state.cache ? state.cache->kept(rule.window) + state.tokens : state.tokens;
    return {state.tokens, keys, state.seen};
  }
  at::Tensor mask(const MaskRule& rule, const at::Tensor& padding) const {
    return ops::open_mask(rule, extent(rule), padding);
  }
  at::Tensor additive(const at::Tensor& open, at::ScalarType dtype) const {
    return open.scalar_type() == at::kBool ? ops::additive_mask(open, dtype) : open;
  }

  void operator()(const op::Replace& o) {
    out[0] = in[0];
    for (int64_t id : o.ids) out[0] = out[0].masked_fill(in[0] == id, o.by);
  }
  void operator()(const op::IsId& o) { out[0] = in[0] == o.id; }
  void operator()(const op::Embed& o) { out[0] = ops::embed(in[0], weights[0], o.scale); }
  void operator()(const op::Rotary& o) {
    std::tie(out[0], out[1]) =
        ops::rotary_table(in[0], ops::rotary_frequencies(o.frequencies, in[1].device()), in[1].scalar_type());
  }
  // As in the reference, eager adds a mask of the model's dtype, the fused kernel takes one of booleans, or none where
  // that says no more than "causal".
  void operator()(const op::Mask& o) {
    if (state.eager) {
      out[0] = additive(mask(o.rule, in[0]), in[2].scalar_type());
    } else if (!ops::is_plain_causal(o.rule, extent(o.rule), in[0].is_meta() ? state.padding : in[0])) {
      out[0] = mask(o.rule, in[0]);
    }
  }
  void operator()(const op::RmsNorm& o) {
    const at::Tensor weight = weights.empty() ? at::Tensor() : weights[0];
    if (own_kernels()) out[0] = ops::kernels::rms_norm(in[0], weight, o.eps, o.gain);
    if (!out[0].defined()) out[0] = ops::rms_norm(in[0], weight, o.eps, o.gain);
  }
  void operator()(const op::Linear&) {
    // As a matrix of rows. at::linear folds the axes itself, but not of a slice such as x[:, -1:], which keeps the
    // strides of the whole: for that it copies all of the weight, transposed (1.3 s instead of 40 ms for a head of 1B).
    const at::Tensor& x = in[0];
    at::Tensor rows = x.reshape({-1, x.size(-1)}), product;
    if (own_kernels() && weights.size() == 1) product = ops::kernels::linear(rows, weights[0]);
    if (!product.defined()) product = ops::linear(rows, weights[0], weights.size() > 1 ? weights[1] : at::Tensor());
    auto sizes = x.sizes().vec();
    sizes.back() = product.size(-1);
    out[0] = at::_unsafe_view(product, sizes);
  }
  void operator()(const op::Rotate& o) { out[0] = ops::rotate(in[0], in[1], in[2], o.head_axis); }
  void operator()(const op::Extend& o) {
    if (state.cache) {
      std::tie(out[0], out[1]) = state.cache->extend(o.cache, o.window, in[0], in[1]);
    } else {
      out[0] = o.copies ? in[0].clone() : in[0];
      out[1] = o.copies ? in[1].clone() : in[1];
    }
  }
  void operator()(const op::Borrow&) {
    out[0] = in[0];
    out[1] = in[1];
  }
  void operator()(const op::Scores& o) {
    // No mask was made: nothing is padding.
    at::Tensor open = in[2].defined() ? in[2] : mask(o.rule, at::ones_like(state.padding).to(in[0].device()));
    at::Tensor added = additive(open, in[0].scalar_type());
    out[0] = ops::attention_scores(in[0], in[1], added, o.scale, o.softcap);
  }
  void operator()(const op::Softmax&) { out[0] = ops::attention_pattern(in[0]); }
  void operator()(const op::Mix&) { out[0] = ops::mix_values(in[0], in[1]); }
  void operator()(const op::FusedAttention& o) {
    out[0] = ops::fused_attention(in[0], in[1], in[2], in[3], o.scale, o.rule.bidirectional);
  }
  void operator()(const op::GeluTanh&) {
    if (own_kernels()) out[0] = ops::kernels::gelu_tanh(in[0]);
    if (!out[0].defined()) out[0] = ops::gelu_tanh(in[0]);
  }
  void operator()(const op::Multiply&) { out[0] = in[0] * (in.size() > 1 ? in[1] : weights[0]); }
  void operator()(const op::Scale& o) { out[0] = in[0] * o.factor; }
  void operator()(const op::Add&) { out[0] = in[0] + in[1]; }
  // Selected one by one: autograd forbids writing into what unbind gives.
  void operator()(const op::Split&) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = in[0].select(2, static_cast<int64_t>(i));
  }
  void operator()(const op::RouterProbabilities&) { out[0] = ops::router_probabilities(in[0]); }
  void operator()(const op::Route& o) { std::tie(out[0], out[1]) = ops::route(in[0], weights[0], o.top_k); }
  void operator()(const op::ExpertsGateUp&) {
    std::tie(out[0], out[1]) = ops::experts_gate_up(in[0], in[1], weights[0]);
  }
  void operator()(const op::ExpertsDown&) { out[0] = ops::experts_down(in[0], in[1], in[2], weights[0]); }
  void operator()(const op::SumSlots&) { out[0] = ops::sum_slots(in[0], in[1].scalar_type()); }
  void operator()(const op::Softcap& o) { out[0] = ops::softcap(in[0], o.cap); }
  void operator()(const op::LastProbabilities&) { out[0] = ops::last_probabilities(in[0]); }
};

}  // namespace

void execute(const Op& op, std::span<const at::Tensor> inputs, std::span<const at::Tensor> weights,
             std::span<at::Tensor> outputs, const PassState& state) {
  // One step computes at a time: each thread of a caller's has a pool of libtorch's own, and pools that compute side by
  // side on the same cores wait for each other.
  static std::mutex computing;
  std::lock_guard alone(computing);
  std::visit(Executor{inputs, weights, outputs, state}, op);
}

}  // namespace v0
}  // namespace gemloupe
