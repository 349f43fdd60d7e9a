#include "gemloupe/ops/kernels/bfloat16.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

// Compiled for these instructions, called where the CPU has them. A lambda does not inherit this: none computes here.
#define GEMLOUPE_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

constexpr int64_t kWide = 32, kNarrow = 16;  // bfloat16 in a register, and as many as fill one when widened
constexpr int64_t kGrain = 1 << 15;          // elements that are worth a thread

bool has_instructions() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
  return has;
}

/// Whether a kernel may walk over `tensor`'s memory. No storage: a wrapper, of vmap say.
bool fits(const at::Tensor& tensor) {
  return has_instructions() && tensor.scalar_type() == at::kBFloat16 && tensor.device().is_cpu() &&
         tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_neg();
}

/// The tensor, or a copy, whose rows of the last axis lie one after another, in whatever order of the other axes.
at::Tensor with_rows(const at::Tensor& tensor) {
  return tensor.stride(-1) == 1 && tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
}

int64_t grain(int64_t elements_a_row) {
  return std::max<int64_t>(1, kGrain / elements_a_row);
}

__mmask32 first32(int64_t count) {
  return count >= kWide ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}

__mmask16 first16(int64_t count) {
  return static_cast<__mmask16>(count >= kNarrow ? 0xffff : (1 << count) - 1);
}

// ------------------------------------------------------------------------------------------------------------- linear

GEMLOUPE_AVX512 inline __m512bh load32(const at::BFloat16* from, __mmask32 mask) {
  return (__m512bh)_mm512_maskz_loadu_epi16(mask, from);
}

/// One row of the weight times each row of x. The weight is read front to back, one stream a thread, which the
/// hardware's prefetcher follows best; four sums a row hide the instruction's latency.
template <int Rows>
GEMLOUPE_AVX512 void multiply_row(const at::BFloat16* x, const at::BFloat16* weight, int64_t in, float* out) {
  constexpr int kSums = 4;
  __m512 sums[Rows][kSums];
  for (auto& row : sums)
    for (auto& sum : row) sum = _mm512_setzero_ps();
  int64_t at = 0;
  for (; at + kSums * kWide <= in; at += kSums * kWide)
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) {
      const __m512bh w = load32(weight + at + s * kWide, first32(kWide));
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r)
        sums[r][s] = _mm512_dpbf16_ps(sums[r][s], w, load32(x + r * in + at + s * kWide, first32(kWide)));
    }
  for (; at < in; at += kWide) {
    const __m512bh w = load32(weight + at, first32(in - at));
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r)
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], w, load32(x + r * in + at, first32(in - at)));
  }
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r)
    out[r] = _mm512_reduce_add_ps(
        _mm512_add_ps(_mm512_add_ps(sums[r][0], sums[r][1]), _mm512_add_ps(sums[r][2], sums[r][3])));
}

template <int Rows>
GEMLOUPE_AVX512 void multiply_rows(const at::BFloat16* x, const at::BFloat16* weight, at::BFloat16* out, int64_t begin,
                                   int64_t end, int64_t in, int64_t width) {
  for (int64_t column = begin; column < end; ++column) {
    float sums[Rows];
    multiply_row<Rows>(x, weight + column * in, in, sums);
    for (int r = 0; r < Rows; ++r) out[r * width + column] = at::BFloat16(sums[r]);
  }
}

constexpr decltype(&multiply_rows<1>) kMultiplyRows[] = {multiply_rows<1>, multiply_rows<2>, multiply_rows<3>,
                                                         multiply_rows<4>};

// --------------------------------------------------------------------------------------------------------- one by one

GEMLOUPE_AVX512 inline __m512 load16(const at::BFloat16* from, __mmask16 mask) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

GEMLOUPE_AVX512 inline void store16(at::BFloat16* to, __mmask16 mask, __m512 from) {
  _mm256_mask_storeu_epi16(to, mask, (__m256i)_mm512_cvtneps_pbh(from));
}

GEMLOUPE_AVX512 void norm_rows(const at::BFloat16* x, const at::BFloat16* weight, at::BFloat16* out, int64_t rows,
                               int64_t width, float eps, float offset) {
  const __m512 offsets = _mm512_set1_ps(offset);
  for (; rows > 0; --rows, x += width, out += width) {
    __m512 squares = _mm512_setzero_ps();
    for (int64_t at = 0; at < width; at += kNarrow) {
      const __m512 part = load16(x + at, first16(width - at));
      squares = _mm512_fmadd_ps(part, part, squares);
    }
    const float mean = _mm512_reduce_add_ps(squares) / static_cast<float>(width);
    const __m512 scale = _mm512_set1_ps(1.0F / std::sqrt(mean + eps));
    for (int64_t at = 0; at < width; at += kNarrow) {
      const __mmask16 mask = first16(width - at);
      __m512 part = _mm512_mul_ps(load16(x + at, mask), scale);
      if (weight) part = _mm512_mul_ps(part, _mm512_add_ps(load16(weight + at, mask), offsets));
      store16(out + at, mask, part);
    }
  }
}

/// e^x to about two ulps, 0 and infinity where it is beyond float32.
GEMLOUPE_AVX512 inline __m512 exp16(__m512 x) {
  const __m512 whole = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F)), 0);
  // ln 2 in two parts: the first has few bits, so that its product is exact.
  __m512 rest = _mm512_fnmadd_ps(whole, _mm512_set1_ps(0.693359375F), x);
  rest = _mm512_fnmadd_ps(whole, _mm512_set1_ps(-2.12194440e-4F), rest);
  __m512 sum = _mm512_set1_ps(1.0F / 720);
  for (float coefficient : {1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F})
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(coefficient));
  return _mm512_scalef_ps(sum, whole);
}

/// x / 2 · (1 + tanh u) is x / (1 + e^(-2u)), with u = √(2/π) · (x + 0.044715 x³).
GEMLOUPE_AVX512 void gelu_range(const at::BFloat16* x, at::BFloat16* out, int64_t count) {
  const __m512 one = _mm512_set1_ps(1), cubic = _mm512_set1_ps(0.044715F);
  const __m512 factor = _mm512_set1_ps(-1.59576912F), least = _mm512_set1_ps(-200), most = _mm512_set1_ps(200);
  for (int64_t at = 0; at < count; at += kNarrow) {
    const __mmask16 mask = first16(count - at);
    const __m512 value = load16(x + at, mask);
    const __m512 inner = _mm512_mul_ps(value, _mm512_fmadd_ps(_mm512_mul_ps(value, value), cubic, one));
    // e^±200 is infinity and 0 already; of an infinite power it would be NaN. min and max give their second operand
    // where one is NaN.
    const __m512 power = exp16(_mm512_min_ps(most, _mm512_max_ps(least, _mm512_mul_ps(inner, factor))));
    store16(out + at, mask, _mm512_div_ps(value, _mm512_add_ps(one, power)));
  }
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight) {
  if (!fits(x) || !fits(weight) || x.dim() != 2 || weight.dim() != 2 || !weight.is_contiguous()) return {};
  const int64_t rows = x.size(0), in = weight.size(1), width = weight.size(0);
  if (rows < 1 || rows > 4 || in < 1 || x.size(1) != in) return {};
  const at::Tensor dense = x.contiguous();
  at::Tensor out = at::empty({rows, width}, x.options());
  const auto* from = dense.const_data_ptr<at::BFloat16>();
  const auto* factors = weight.const_data_ptr<at::BFloat16>();
  auto* to = out.mutable_data_ptr<at::BFloat16>();
  at::parallel_for(0, width, grain(in), [&](int64_t begin, int64_t end) {
    kMultiplyRows[rows - 1](from, factors, to, begin, end, in, width);
  });
  return out;
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, Gain gain) {
  if (!fits(x) || x.dim() < 1 || x.numel() == 0) return {};
  const int64_t width = x.size(-1);
  const at::BFloat16* factors = nullptr;
  if (gain != Gain::None) {
    if (!fits(weight) || !weight.is_contiguous() || weight.numel() != width) return {};
    factors = weight.const_data_ptr<at::BFloat16>();
  }
  const at::Tensor dense = with_rows(x);
  at::Tensor out = at::empty_like(dense);
  const auto* from = dense.const_data_ptr<at::BFloat16>();
  auto* to = out.mutable_data_ptr<at::BFloat16>();
  const float offset = gain == Gain::OnePlusWeight ? 1 : 0;
  at::parallel_for(0, x.numel() / width, grain(width), [&](int64_t begin, int64_t end) {
    norm_rows(from + begin * width, factors, to + begin * width, end - begin, width, static_cast<float>(eps), offset);
  });
  return out;
}

at::Tensor gelu_tanh(const at::Tensor& x) {
  if (!fits(x) || x.dim() < 1 || x.numel() == 0) return {};
  const at::Tensor dense = with_rows(x);
  at::Tensor out = at::empty_like(dense);
  const auto* from = dense.const_data_ptr<at::BFloat16>();
  auto* to = out.mutable_data_ptr<at::BFloat16>();
  at::parallel_for(0, x.numel(), kGrain,
                   [&](int64_t begin, int64_t end) { gelu_range(from + begin, to + begin, end - begin); });
  return out;
}

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
