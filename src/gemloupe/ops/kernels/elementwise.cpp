#include "gemloupe/ops/kernels/elementwise.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "gemloupe/ops/kernels/table.h"
#include "gemloupe/ops/kernels/walk.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

bool takes(const at::Tensor& x) {
  return fits(x) && x.dim() >= 1 && x.numel() > 0;
}

bool alike(const at::Tensor& a, const at::Tensor& b) {
  return takes(b) && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes();
}

/// The tensor, or a copy, whose rows of the last axis lie one after another, in whatever order of the other axes.
at::Tensor with_rows(const at::Tensor& x) {
  return x.stride(-1) == 1 && x.is_non_overlapping_and_dense() ? x : x.contiguous();
}

/// The two, or copies, in the same such order.
std::pair<at::Tensor, at::Tensor> with_rows(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor dense = with_rows(a);
  if (dense.strides() == b.strides()) return {dense, b};
  return {dense.contiguous(), b.contiguous()};
}

template <class T>
const T* read(const at::Tensor& x) {
  return x.defined() ? static_cast<const T*>(x.const_data_ptr()) : nullptr;
}

template <class T>
T* written(const at::Tensor& x) {
  return static_cast<T*>(x.mutable_data_ptr());
}

/// `run` with the loops for x's dtype.
template <class Run>
void by_dtype(const at::Tensor& x, Run run) {
  const ElementwiseLoops& loops = table().elementwise;
  x.scalar_type() == at::kBFloat16 ? run(loops.bf16) : run(loops.f32);
}

template <class T, class W>
void run_norm(void (*loop)(const Norm<T, W>&, int64_t, int64_t), const at::Tensor& x, const at::Tensor& weight,
              const at::Tensor& residual, const at::Tensor& out, float eps, float offset) {
  const int64_t width = x.size(-1);
  const Norm<T, W> norm{read<T>(x), read<W>(weight), read<T>(residual), written<T>(out), width, eps, offset};
  at::parallel_for(0, x.numel() / width, grain(width), [&](int64_t begin, int64_t end) { loop(norm, begin, end); });
}

/// x, and a residual where there is one, are dense and alike.
at::Tensor normed(const at::Tensor& x, const at::Tensor& given, double eps, Gain gain, const at::Tensor& residual) {
  at::Tensor weight;
  if (gain != Gain::None) {
    if (!fits(given) || !given.is_contiguous() || given.numel() != x.size(-1)) return {};
    weight = given;
  }
  const bool narrow = weight.defined() && weight.scalar_type() == at::kBFloat16;
  if (x.scalar_type() == at::kBFloat16 && weight.defined() && !narrow) return {};
  const at::Tensor out = at::empty_like(x);
  const float offset = gain == Gain::OnePlusWeight ? 1 : 0;
  by_dtype(x, [&](const auto& loops) {
    auto run = [&](auto loop) { run_norm(loop, x, weight, residual, out, static_cast<float>(eps), offset); };
    narrow ? run(loops.norm_bf16_weight) : run(loops.norm);
  });
  return out;
}

template <class T>
void run_gelu(const ElementwiseLoopsOf<T>& loops, const at::Tensor& x, const at::Tensor& up, const at::Tensor& out) {
  const T *from = read<T>(x), *factors = read<T>(up);
  T* to = written<T>(out);
  at::parallel_for(0, x.numel(), grain(1), [&](int64_t begin, int64_t end) {
    loops.gelu(from + begin, factors ? factors + begin : nullptr, to + begin, end - begin);
  });
}

template <class T>
void run_softcap(const ElementwiseLoopsOf<T>& loops, const at::Tensor& x, float cap, const at::Tensor& out) {
  const T* from = read<T>(x);
  T* to = written<T>(out);
  at::parallel_for(0, x.numel(), grain(1),
                   [&](int64_t begin, int64_t end) { loops.softcap(from + begin, cap, to + begin, end - begin); });
}

/// [batch or 1, seq, dim] of x's dtype and sizes.
bool takes_table(const at::Tensor& table, const at::Tensor& x, int64_t seq) {
  return takes(table) && table.scalar_type() == x.scalar_type() && table.dim() == 3 &&
         (table.size(0) == x.size(0) || table.size(0) == 1) && table.size(1) == seq && table.size(2) == x.size(3);
}

template <class T>
void run_rotate(const ElementwiseLoopsOf<T>& loops, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                int64_t head_axis, const at::Tensor& out) {
  const int64_t dim = x.size(3), batch = cos.size(0) == 1 ? 0 : cos.stride(0), seq = cos.stride(1);
  Rotation<T> rotation{read<T>(x),
                       read<T>(cos),
                       read<T>(sin),
                       written<T>(out),
                       x.size(1),
                       x.size(2),
                       dim,
                       {x.stride(0), x.stride(1), x.stride(2)},
                       {batch, head_axis == 1 ? 0 : seq, head_axis == 1 ? seq : 0}};
  at::parallel_for(0, x.numel() / dim, grain(dim),
                   [&](int64_t begin, int64_t end) { loops.rotate(rotation, begin, end); });
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, Gain gain) {
  return takes(x) ? normed(with_rows(x), weight, eps, gain, {}) : at::Tensor();
}

at::Tensor norm_add(const at::Tensor& x, const at::Tensor& weight, double eps, Gain gain, const at::Tensor& residual) {
  if (!takes(x) || !alike(x, residual)) return {};
  const auto [dense, added] = with_rows(x, residual);
  return normed(dense, weight, eps, gain, added);
}

at::Tensor gelu_tanh(const at::Tensor& x) {
  if (!takes(x)) return {};
  const at::Tensor dense = with_rows(x), out = at::empty_like(dense);
  by_dtype(x, [&](const auto& loops) { run_gelu(loops, dense, {}, out); });
  return out;
}

at::Tensor geglu(const at::Tensor& gate, const at::Tensor& up) {
  if (!takes(gate) || !alike(gate, up)) return {};
  const auto [dense, factors] = with_rows(gate, up);
  const at::Tensor out = at::empty_like(dense);
  by_dtype(gate, [&, &dense = dense, &factors = factors](const auto& loops) { run_gelu(loops, dense, factors, out); });
  return out;
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int64_t head_axis) {
  if (!takes(x) || x.dim() != 4 || x.size(3) % 2 != 0 || (head_axis != 1 && head_axis != 2)) return {};
  const int64_t seq = x.size(3 - head_axis);
  if (!takes_table(cos, x, seq) || !takes_table(sin, x, seq) || cos.size(0) != sin.size(0)) return {};
  const at::Tensor dense = with_dense_rows(x);
  const at::Tensor out = at::empty(x.sizes(), x.options());
  by_dtype(x, [&](const auto& loops) { run_rotate(loops, dense, cos.contiguous(), sin.contiguous(), head_axis, out); });
  return out;
}

at::Tensor softcap(const at::Tensor& x, double cap) {
  if (!takes(x)) return {};
  const at::Tensor dense = with_rows(x), out = at::empty_like(dense);
  by_dtype(x, [&](const auto& loops) { run_softcap(loops, dense, static_cast<float>(cap), out); });
  return out;
}

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
