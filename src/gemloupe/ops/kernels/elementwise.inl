// Element-wise work: norms, GELU, rotary embedding, caps, each in one pass over memory, or two over a row that the
// first brought into the cache.
//
// What is fused rounds between its operations as they do, so that fusing changes no bit. Every lane computes the same
// wherever its number lies: tails go through the same instructions, with zeros behind them.
#pragma once

#include "gemloupe/ops/kernels/elementwise_loops.h"
#include "gemloupe/ops/kernels/simd.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

// -------------------------------------------------------------------------------------------------------------- norms

/// Four sums, so that none waits for the one before it.
template <class T>
GEMLOUPE_INLINE float mean_of_squares(const T* x, int64_t width) {
  Float sums[4];
  for (auto& sum : sums) sum = broadcast(0);
  auto add = [&](Float & sum, Float part) __attribute__((always_inline)) {
    sum = fma(part, part, sum);
  };
  int64_t at = 0;
  for (; at + 4 * kLanes <= width; at += 4 * kLanes)
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) add(sums[s], load(x + at + s * kLanes));
  for (; at < width; at += kLanes) add(sums[0], load_up_to(x + at, width - at));
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3])) / static_cast<float>(width);
}

template <class T, class W>
void norm_row(const Norm<T, W>& n, int64_t row) {
  const T *x = n.x + row * n.width, *residual = n.residual ? n.residual + row * n.width : nullptr;
  T* out = n.out + row * n.width;
  const Float scale = broadcast(1.0F / __builtin_sqrtf(mean_of_squares(x, n.width) + n.eps));
  const Float offset = broadcast(n.offset);
  for (int64_t at = 0; at < n.width; at += kLanes) {
    const int64_t left = n.width - at;
    Float part = load_up_to(x + at, left) * scale;
    if (n.weight) part = part * (load_up_to(n.weight + at, left) + offset);
    if (residual) part = load_up_to(residual + at, left) + rounded_exactly_to<T>(part);
    store_exactly_up_to(out + at, part, left);
  }
}

template <class T, class W>
void norm_rows(const Norm<T, W>& n, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) norm_row(n, row);
}

// --------------------------------------------------------------------------------------------------------- activation

/// x / 2 · (1 + tanh u) is x / (1 + e^(-2u)), with u = √(2/π) · (x + 0.044715 x³): no difference of near numbers.
GEMLOUPE_INLINE Float gelu(Float x) {
  const Float inner = x * fma(x * x, broadcast(0.044715F), broadcast(1));
  return x / (broadcast(1) + exp(inner * broadcast(-1.59576912F)));
}

template <class T>
void gelu_range(const T* x, const T* up, T* out, int64_t count) {
  for (int64_t at = 0; at < count; at += kLanes) {
    const int64_t left = count - at;
    Float y = gelu(load_up_to(x + at, left));
    if (up) y = rounded_exactly_to<T>(y) * load_up_to(up + at, left);
    store_exactly_up_to(out + at, y, left);
  }
}

// ------------------------------------------------------------------------------------------------------------ softcap

/// 1 - 2 / (e^2x + 1), which loses what is small beside 1: there x times a polynomial in x², Cephes' tanhf.
GEMLOUPE_INLINE Float tanh(Float x) {
  const Float square = x * x;
  Float sum = broadcast(-5.70498872745e-3F);
  sum = fma(sum, square, broadcast(2.06390887954e-2F));
  sum = fma(sum, square, broadcast(-5.37397155531e-2F));
  sum = fma(sum, square, broadcast(1.33314422036e-1F));
  sum = fma(sum, square, broadcast(-3.33332819422e-1F));
  const Float near = fma(sum * square, x, x);
  const Float far = broadcast(1) - broadcast(2) / (exp(x + x) + broadcast(1));
  return where_below(square, broadcast(0.625F * 0.625F), near, far);
}

template <class T>
void softcap_range(const T* x, float cap, T* out, int64_t count) {
  const Float caps = broadcast(cap);
  for (int64_t at = 0; at < count; at += kLanes) {
    const int64_t left = count - at;
    store_exactly_up_to(out + at, caps * tanh(load_up_to(x + at, left) / caps), left);
  }
}

// ------------------------------------------------------------------------------------------------------------- rotary

template <class T>
GEMLOUPE_INLINE void rotate_row(const T* x, const T* cos, const T* sin, int64_t half, T* out) {
  for (int64_t at = 0; at < half; at += kLanes) {
    const int64_t left = half - at;
    auto product = [&](const T* a, const T* b) __attribute__((always_inline)) {
      return rounded_exactly_to<T>(load_up_to(a + at, left) * load_up_to(b + at, left));
    };
    store_exactly_up_to(out + at, product(x, cos) - product(x + half, sin), left);
    store_exactly_up_to(out + half + at, product(x + half, cos + half) + product(x, sin + half), left);
  }
}

template <class T>
void rotate_rows(const Rotation<T>& r, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t i = row / (r.second * r.third), j = row / r.third % r.second, k = row % r.third;
    auto offset = [&](const int64_t(&strides)[3]) { return i * strides[0] + j * strides[1] + k * strides[2]; };
    const int64_t table = offset(r.table_strides);
    rotate_row(r.x + offset(r.x_strides), r.cos + table, r.sin + table, r.dim / 2, r.out + row * r.dim);
  }
}

template <class T>
constexpr ElementwiseLoopsOf<T> kElementwiseLoopsOf = {norm_rows<T, T>, norm_rows<T, Bfloat16>, rotate_rows<T>,
                                                       gelu_range<T>, softcap_range<T>};

constexpr ElementwiseLoops kElementwiseLoops = {kElementwiseLoopsOf<Bfloat16>, kElementwiseLoopsOf<float>};

}  // namespace
}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
