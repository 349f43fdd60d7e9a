#include "gemloupe/run/execute.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <mutex>

#include "gemloupe/ops/attention.h"
#include "gemloupe/ops/basic.h"
#include "gemloupe/ops/experts.h"
#include "gemloupe/ops/kernels/attention.h"
#include "gemloupe/ops/kernels/elementwise.h"
#include "gemloupe/ops/kernels/linear.h"
#include "gemloupe/ops/kernels/quantised.h"
#include "gemloupe/ops/norm.h"
#include "gemloupe/ops/rotary.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// Rows of which a block's MLP is computed at once: enough that its weights are not read for nothing.
constexpr int64_t kRowBlock = 512;

struct Executor {
  std::span<const at::Tensor> in;
  std::span<const ops::Weight> weights;
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
  void operator()(const op::Embed& o) { out[0] = ops::embed(in[0], weights[0], o.scale, state.dtype); }
  void operator()(const op::Rotary& o) {
    std::tie(out[0], out[1]) =
        ops::rotary_table(in[0], ops::rotary_frequencies(o.frequencies, in[1].device()), in[1].scalar_type());
  }
  // As in the reference, eager adds a mask of the model's dtype; its default has one of booleans, or none where that
  // says no more than "causal".
  void operator()(const op::Mask& o) {
    if (state.eager) {
      out[0] = additive(mask(o.rule, in[0]), in[2].scalar_type());
    } else if (!ops::is_plain_causal(o.rule, extent(o.rule), in[0].is_meta() ? state.padding : in[0])) {
      out[0] = mask(o.rule, in[0]);
    }
  }
  /// What our own kernel makes of it, or what libtorch does where that is not for these tensors.
  template <class Own, class Reference>
  at::Tensor either(Own own, Reference reference) const {
    at::Tensor made;
    if (own_kernels()) made = own();
    return made.defined() ? made : reference();
  }

  /// A weight that is never but numbers of the run's dtype: all but matrices.
  at::Tensor vector() const { return weights.empty() ? at::Tensor() : weights[0].numbers; }

  at::Tensor norm(const at::Tensor& x, double eps, Gain gain) const {
    const at::Tensor weight = vector();
    return either([&] { return ops::kernels::rms_norm(x, weight, eps, gain); },
                  [&] { return ops::rms_norm(x, weight, eps, gain); });
  }
  static at::Tensor own_linear(const at::Tensor& rows, const ops::Weight& weight) {
    return weight.blocks ? ops::kernels::quantised_linear(rows, weight.numbers, *weight.blocks)
                         : ops::kernels::linear(rows, weight.numbers);
  }
  /// make(some rows of x) for all of them, so many at a time: what it makes on the way takes no more memory.
  /// In even blocks, so that none is of few rows, whose products have their own kernels.
  template <class Make>
  at::Tensor in_row_blocks(const at::Tensor& x, int64_t width, Make make) const {
    const int64_t rows = x.size(0), blocks = (rows + kRowBlock - 1) / kRowBlock;
    if (!own_kernels() || blocks < 2) return make(x);
    at::Tensor all = at::empty({rows, width}, x.options());
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = rows * block / blocks, some = rows * (block + 1) / blocks - first;
      all.narrow(0, first, some).copy_(make(x.narrow(0, first, some)));
    }
    return all;
  }
  /// As a matrix of rows. at::linear folds the axes itself, but not of a slice such as x[:, -1:], which keeps the
  /// strides of the whole: for that it copies all of the weight, transposed (1.3 s instead of 40 ms for a head of 1B).
  /// In the blocks in which an MLP takes rows: a product's bits may depend on how many there are.
  at::Tensor linear(const at::Tensor& x) const {
    const at::Tensor rows = x.reshape({-1, x.size(-1)}), bias = weights.size() > 1 ? weights[1].numbers : at::Tensor();
    return shaped_as(x, in_row_blocks(rows, weights[0].numbers.size(0),
                                      [&](const at::Tensor& some) { return product(some, weights[0], bias); }));
  }
  at::Tensor product(const at::Tensor& rows, const ops::Weight& weight, const at::Tensor& bias = {}) const {
    if (own_kernels() && !bias.defined())
      if (at::Tensor own = own_linear(rows, weight); own.defined()) return own;
    return ops::linear(rows, weight.as(rows.scalar_type()), bias);
  }
  static at::Tensor shaped_as(const at::Tensor& x, const at::Tensor& product) {
    auto sizes = x.sizes().vec();
    sizes.back() = product.size(-1);
    return at::_unsafe_view(product, sizes);
  }
  at::Tensor gelu(const at::Tensor& x) const {
    return either([&] { return ops::kernels::gelu_tanh(x); }, [&] { return ops::gelu_tanh(x); });
  }

  void operator()(const op::RmsNorm& o) { out[0] = norm(in[0], o.eps, o.gain); }
  void operator()(const op::NormAdd& o) {
    out[0] = either([&] { return ops::kernels::norm_add(in[0], vector(), o.eps, o.gain, in[1]); },
                    [&] { return in[1] + norm(in[0], o.eps, o.gain); });
  }
  void operator()(const op::Linear&) { out[0] = linear(in[0]); }
  at::Tensor gated(const at::Tensor& gate, const at::Tensor& up) const {
    return either([&] { return ops::kernels::geglu(gate, up); }, [&] { return gelu(gate) * up; });
  }
  void operator()(const op::GatedUp&) { out[0] = gated(in[0], linear(in[1])); }
  void operator()(const op::GatedMlp&) {
    const at::Tensor rows = in[0].reshape({-1, in[0].size(-1)});
    const at::Tensor sum = in_row_blocks(rows, weights[2].numbers.size(0), [&](const at::Tensor& some) {
      return product(gated(product(some, weights[0]), product(some, weights[1])), weights[2]);
    });
    out[0] = shaped_as(in[0], sum);
  }
  void operator()(const op::Rotate& o) {
    out[0] = either([&] { return ops::kernels::rotate(in[0], in[1], in[2], o.head_axis); },
                    [&] { return ops::rotate(in[0], in[1], in[2], o.head_axis); });
  }
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
  at::Tensor scores(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& given, double scale,
                    std::optional<double> softcap, const MaskRule& rule) const {
    return either([&] { return ops::kernels::attention_scores(queries, keys, given, scale, softcap); },
                  [&] {
                    // No mask was made: nothing is padding.
                    const at::Tensor open =
                        given.defined() ? given : mask(rule, at::ones_like(state.padding).to(queries.device()));
                    return ops::attention_scores(queries, keys, additive(open, queries.scalar_type()), scale, softcap);
                  });
  }
  at::Tensor pattern(const at::Tensor& scores) const {
    return either([&] { return ops::kernels::attention_pattern(scores); },
                  [&] { return ops::attention_pattern(scores); });
  }
  at::Tensor mixed(const at::Tensor& pattern, const at::Tensor& values) const {
    return either([&] { return ops::kernels::mix_values(pattern, values); },
                  [&] { return ops::mix_values(pattern, values); });
  }

  void operator()(const op::Scores& o) { out[0] = scores(in[0], in[1], in[2], o.scale, o.softcap, o.rule); }
  void operator()(const op::Softmax&) { out[0] = pattern(in[0]); }
  void operator()(const op::Mix&) { out[0] = mixed(in[0], in[1]); }
  void operator()(const op::FusedAttention& o) {
    out[0] = either([&] { return ops::kernels::attention(in[0], in[1], in[2], in[3], o.scale, o.softcap); },
                    [&] { return mixed(pattern(scores(in[0], in[1], in[3], o.scale, o.softcap, o.rule)), in[2]); });
  }
  void operator()(const op::GeluTanh&) { out[0] = gelu(in[0]); }
  void operator()(const op::Multiply&) { out[0] = in[0] * (in.size() > 1 ? in[1] : vector()); }
  void operator()(const op::Scale& o) { out[0] = in[0] * o.factor; }
  void operator()(const op::Add&) { out[0] = in[0] + in[1]; }
  // Selected one by one: autograd forbids writing into what unbind gives.
  void operator()(const op::Split&) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = in[0].select(2, static_cast<int64_t>(i));
  }
  void operator()(const op::RouterProbabilities&) { out[0] = ops::router_probabilities(in[0]); }
  void operator()(const op::Route& o) { std::tie(out[0], out[1]) = ops::route(in[0], vector(), o.top_k); }
  void operator()(const op::ExpertsGateUp&) { std::tie(out[0], out[1]) = ops::experts_gate_up(in[0], in[1], vector()); }
  void operator()(const op::ExpertsDown&) { out[0] = ops::experts_down(in[0], in[1], in[2], vector()); }
  void operator()(const op::SumSlots&) { out[0] = ops::sum_slots(in[0], in[1].scalar_type()); }
  void operator()(const op::Softcap& o) {
    out[0] = either([&] { return ops::kernels::softcap(in[0], o.cap); }, [&] { return ops::softcap(in[0], o.cap); });
  }
  void operator()(const op::LastProbabilities&) { out[0] = ops::last_probabilities(in[0]); }
};

}  // namespace

void execute(const Op& op, std::span<const at::Tensor> inputs, std::span<const ops::Weight> weights,
             std::span<at::Tensor> outputs, const PassState& state) {
  // One step computes at a time: each thread of a caller's has a pool of libtorch's own, and pools that compute side by
  // side on the same cores wait for each other.
  static std::mutex computing;
  std::lock_guard alone(computing);
  std::visit(Executor{inputs, weights, outputs, state}, op);
}

}  // namespace v0
}  // namespace gemloupe
