// One register of floats, whatever instructions this file is compiled for: the bodies are written once in these words.
//
// Included by the files of isa/ only, each of which is compiled for other instructions: all of it is in a nameless
// namespace, and nothing of the standard library that could be inline is used, or the linker might keep one file's copy
// for all. -ffp-contract=off keeps products and sums as they are written, so that a body gives the same bits wherever
// it is inlined.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "gemloupe/ops/kernels/bfloat16_bits.h"

#define GEMLOUPE_INLINE inline __attribute__((always_inline))

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

constexpr int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

constexpr int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

// ------------------------------------------------------------------------------------------------ what differs by
// width

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)

constexpr int64_t kLanes = 16;
using Float = __m512;
using Bits = __m512i;  ///< 32 bits a lane; as Pairs two bfloat16 a lane

GEMLOUPE_INLINE __mmask16 lanes_below(int64_t count) {
  return static_cast<__mmask16>((1U << count) - 1);
}
GEMLOUPE_INLINE Float broadcast(float x) {
  return _mm512_set1_ps(x);
}
GEMLOUPE_INLINE Float fma(Float a, Float b, Float c) {
  return _mm512_fmadd_ps(a, b, c);
}
GEMLOUPE_INLINE Float max(Float a, Float b) {  ///< b where one is NaN
  return _mm512_max_ps(a, b);
}
GEMLOUPE_INLINE Float min(Float a, Float b) {
  return _mm512_min_ps(a, b);
}
GEMLOUPE_INLINE Float round(Float x) {
  return _mm512_roundscale_ps(x, 0);
}
GEMLOUPE_INLINE Float times_power_of_two(Float x, Float whole) {
  return _mm512_scalef_ps(x, whole);
}
GEMLOUPE_INLINE Float as_float(Bits x) {
  return _mm512_castsi512_ps(x);
}
GEMLOUPE_INLINE Float load(const float* from) {
  return _mm512_loadu_ps(from);
}
GEMLOUPE_INLINE Float load(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(lanes_below(count), from);
}
GEMLOUPE_INLINE Float load(const Bfloat16* from) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return as_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
GEMLOUPE_INLINE Float load(const Bfloat16* from, int64_t count) {
  const __m256i half = _mm256_maskz_loadu_epi16(lanes_below(count), from);
  return as_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
GEMLOUPE_INLINE void store(float* to, Float x) {
  _mm512_storeu_ps(to, x);
}
GEMLOUPE_INLINE void store(float* to, Float x, int64_t count) {
  _mm512_mask_storeu_ps(to, lanes_below(count), x);
}
/// The nearest bfloat16 in each upper half, ties to even; a NaN stays one.
GEMLOUPE_INLINE Bits upper_rounded(Float x) {
  const Bits bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
  const Bits odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
  const Bits sum = _mm512_add_epi32(bits, _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_mov_epi32(sum, nan, _mm512_set1_epi32(0x7fc00000));
}
#if defined(__AVX512BF16__)
GEMLOUPE_INLINE __m256i rounded(Float x) {  ///< what is below the normal numbers is 0 to this instruction
  return (__m256i)_mm512_cvtneps_pbh(x);
}
GEMLOUPE_INLINE __m256i rounded_exactly(Float x) {
  if (__builtin_expect(_mm512_fpclass_ps_mask(x, 0x20), 0))
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(upper_rounded(x), 16));
  return rounded(x);
}
#else
GEMLOUPE_INLINE __m256i rounded(Float x) {
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(upper_rounded(x), 16));
}
GEMLOUPE_INLINE __m256i rounded_exactly(Float x) {
  return rounded(x);
}
#endif
GEMLOUPE_INLINE Float as_bfloat16(Float x) {
  return as_float(_mm512_and_si512(upper_rounded(x), _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
}
GEMLOUPE_INLINE Float where_below(Float a, Float b, Float then, Float otherwise) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), otherwise, then);
}
GEMLOUPE_INLINE void store(Bfloat16* to, Float x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded(x));
}
GEMLOUPE_INLINE void store(Bfloat16* to, Float x, int64_t count) {
  _mm256_mask_storeu_epi16(to, lanes_below(count), rounded(x));
}
GEMLOUPE_INLINE void store_exactly(Bfloat16* to, Float x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded_exactly(x));
}
GEMLOUPE_INLINE void store_exactly(Bfloat16* to, Float x, int64_t count) {
  _mm256_mask_storeu_epi16(to, lanes_below(count), rounded_exactly(x));
}
GEMLOUPE_INLINE Bits load_pairs(const Bfloat16* from) {
  return _mm512_loadu_si512(from);
}
GEMLOUPE_INLINE Bits load_pairs(const Bfloat16* from, int64_t count) {
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1ULL << count) - 1), from);
}
GEMLOUPE_INLINE Float first_of(Bits pairs) {
  return as_float(_mm512_slli_epi32(pairs, 16));
}
GEMLOUPE_INLINE Float second_of(Bits pairs) {
  return as_float(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
}
GEMLOUPE_INLINE void sums_of(Float a, Float b, Float c, Float d, float* out) {
  const Float ab = _mm512_unpacklo_ps(a, b) + _mm512_unpackhi_ps(a, b);
  const Float cd = _mm512_unpacklo_ps(c, d) + _mm512_unpackhi_ps(c, d);
  const __m512d low = _mm512_unpacklo_pd((__m512d)ab, (__m512d)cd), high = _mm512_unpackhi_pd((__m512d)ab, (__m512d)cd);
  const Float all = (Float)low + (Float)high;
  const __m256 half = _mm512_castps512_ps256(all) + (__m256)_mm512_extractf64x4_pd((__m512d)all, 1);
  _mm_storeu_ps(out, _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1));
}
GEMLOUPE_INLINE float max_of(Float x) {
  return _mm512_reduce_max_ps(x);
}

#elif defined(__AVX2__) && defined(__FMA__)

constexpr int64_t kLanes = 8;
using Float = __m256;
using Bits = __m256i;

GEMLOUPE_INLINE Bits lanes_below(int64_t count) {
  const Bits index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), index);
}
GEMLOUPE_INLINE Float broadcast(float x) {
  return _mm256_set1_ps(x);
}
GEMLOUPE_INLINE Float fma(Float a, Float b, Float c) {
  return _mm256_fmadd_ps(a, b, c);
}
GEMLOUPE_INLINE Float max(Float a, Float b) {
  return _mm256_max_ps(a, b);
}
GEMLOUPE_INLINE Float min(Float a, Float b) {
  return _mm256_min_ps(a, b);
}
GEMLOUPE_INLINE Float round(Float x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
GEMLOUPE_INLINE Float as_float(Bits x) {
  return _mm256_castsi256_ps(x);
}
/// In two halves, so that neither power leaves the range of a float before the product does.
GEMLOUPE_INLINE Float times_power_of_two(Float x, Float whole) {
  const Bits power = _mm256_cvtps_epi32(min(broadcast(254), max(broadcast(-252), whole)));
  const Bits half = _mm256_srai_epi32(power, 1), rest = _mm256_sub_epi32(power, half), bias = _mm256_set1_epi32(127);
  x = x * as_float(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  return x * as_float(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
}
GEMLOUPE_INLINE Float load(const float* from) {
  return _mm256_loadu_ps(from);
}
GEMLOUPE_INLINE Float load(const float* from, int64_t count) {
  return _mm256_maskload_ps(from, lanes_below(count));
}
GEMLOUPE_INLINE Float load(const Bfloat16* from) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return as_float(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
GEMLOUPE_INLINE void store(float* to, Float x) {
  _mm256_storeu_ps(to, x);
}
GEMLOUPE_INLINE void store(float* to, Float x, int64_t count) {
  _mm256_maskstore_ps(to, lanes_below(count), x);
}
GEMLOUPE_INLINE Bits upper_rounded(Float x) {
  const Bits bits = _mm256_castps_si256(x), one = _mm256_set1_epi32(1);
  const Bits odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
  const Bits sum = _mm256_add_epi32(bits, _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd));
  const Bits nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(sum, _mm256_set1_epi32(0x7fc00000), nan);
}
GEMLOUPE_INLINE Float as_bfloat16(Float x) {
  return as_float(_mm256_and_si256(upper_rounded(x), _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}
GEMLOUPE_INLINE Float where_below(Float a, Float b, Float then, Float otherwise) {
  return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
GEMLOUPE_INLINE void store(Bfloat16* to, Float x) {
  const Bits sum = _mm256_srli_epi32(upper_rounded(x), 16);
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), packed);
}
GEMLOUPE_INLINE Bits load_pairs(const Bfloat16* from) {
  return _mm256_loadu_si256(reinterpret_cast<const Bits*>(from));
}
GEMLOUPE_INLINE Float first_of(Bits pairs) {
  return as_float(_mm256_slli_epi32(pairs, 16));
}
GEMLOUPE_INLINE Float second_of(Bits pairs) {
  return as_float(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}
GEMLOUPE_INLINE void sums_of(Float a, Float b, Float c, Float d, float* out) {
  const Float ab = _mm256_unpacklo_ps(a, b) + _mm256_unpackhi_ps(a, b);
  const Float cd = _mm256_unpacklo_ps(c, d) + _mm256_unpackhi_ps(c, d);
  const __m256d low = _mm256_unpacklo_pd((__m256d)ab, (__m256d)cd), high = _mm256_unpackhi_pd((__m256d)ab, (__m256d)cd);
  const Float all = (Float)low + (Float)high;
  _mm_storeu_ps(out, _mm256_castps256_ps128(all) + _mm256_extractf128_ps(all, 1));
}
GEMLOUPE_INLINE float max_of(Float x) {
  __m128 most = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  most = _mm_max_ps(most, _mm_movehl_ps(most, most));
  return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}

#else  // the compiler's own vectors, of four

constexpr int64_t kLanes = 4;
typedef float Float __attribute__((vector_size(16)));
typedef int32_t Bits __attribute__((vector_size(16)));

GEMLOUPE_INLINE Float broadcast(float x) {
  return Float{x, x, x, x};
}
GEMLOUPE_INLINE Float fma(Float a, Float b, Float c) {
  return a * b + c;
}
GEMLOUPE_INLINE Float max(Float a, Float b) {
  return a > b ? a : b;
}
GEMLOUPE_INLINE Float min(Float a, Float b) {
  return a < b ? a : b;
}
/// Of less than 2^22: beside 1.5 · 2^23 there is no room for a fraction. Before SSE4.1 the alternative is a call a
/// lane.
GEMLOUPE_INLINE Float round(Float x) {
  const Float large = broadcast(12582912);
  return (x + large) - large;
}
GEMLOUPE_INLINE Float as_float(Bits x) {
  return reinterpret_cast<Float>(x);
}
GEMLOUPE_INLINE Float times_power_of_two(Float x, Float whole) {
  whole = min(broadcast(254), max(broadcast(-252), whole));
  const Bits power = __builtin_convertvector(whole, Bits), half = power >> 1, rest = power - half;
  return x * as_float((half + 127) << 23) * as_float((rest + 127) << 23);
}
GEMLOUPE_INLINE Float load(const float* from) {
  Float x;
  memcpy(&x, from, sizeof x);
  return x;
}
GEMLOUPE_INLINE Float load(const Bfloat16* from) {
  return as_float(Bits{from[0].bits, from[1].bits, from[2].bits, from[3].bits} << 16);
}
GEMLOUPE_INLINE void store(float* to, Float x) {
  memcpy(to, &x, sizeof x);
}
GEMLOUPE_INLINE void store(float* to, Float x, int64_t count) {
  memcpy(to, &x, sizeof(float) * static_cast<size_t>(count));
}
GEMLOUPE_INLINE Bits upper_rounded(Float x) {
  typedef uint32_t Unsigned __attribute__((vector_size(16)));
  const Unsigned bits = reinterpret_cast<Unsigned>(x), sum = bits + 0x7fffU + ((bits >> 16) & 1U);
  return x != x ? Bits{} + 0x7fc00000 : reinterpret_cast<Bits>(sum);
}
GEMLOUPE_INLINE Float as_bfloat16(Float x) {
  return as_float(upper_rounded(x) & static_cast<int32_t>(0xffff0000U));
}
GEMLOUPE_INLINE Float where_below(Float a, Float b, Float then, Float otherwise) {
  return a < b ? then : otherwise;
}
GEMLOUPE_INLINE void store(Bfloat16* to, Float x) {
  const Bits sum = upper_rounded(x);
  for (int64_t i = 0; i < kLanes; ++i) to[i].bits = static_cast<uint16_t>(static_cast<uint32_t>(sum[i]) >> 16);
}
GEMLOUPE_INLINE Bits load_pairs(const Bfloat16* from) {
  Bits x;
  memcpy(&x, from, sizeof x);
  return x;
}
GEMLOUPE_INLINE Float first_of(Bits pairs) {
  return as_float(pairs << 16);
}
GEMLOUPE_INLINE Float second_of(Bits pairs) {
  return as_float(pairs & static_cast<int32_t>(0xffff0000U));
}
GEMLOUPE_INLINE void sums_of(Float a, Float b, Float c, Float d, float* out) {
  out[0] = (a[0] + a[2]) + (a[1] + a[3]);
  out[1] = (b[0] + b[2]) + (b[1] + b[3]);
  out[2] = (c[0] + c[2]) + (c[1] + c[3]);
  out[3] = (d[0] + d[2]) + (d[1] + d[3]);
}
GEMLOUPE_INLINE float max_of(Float x) {
  const float a = x[0] > x[2] ? x[0] : x[2], b = x[1] > x[3] ? x[1] : x[3];
  return a > b ? a : b;
}
#endif

// --------------------------------------------------------------------------------------- what is the same for all of
// them

constexpr int64_t kPairs = 2 * kLanes;  ///< bfloat16 in a register

#if !defined(__AVX512BW__)
template <class T>
GEMLOUPE_INLINE void copy_in(T* to, const T* from, int64_t count) {
  memcpy(to, from, sizeof(T) * static_cast<size_t>(count));
}
GEMLOUPE_INLINE Float load(const Bfloat16* from, int64_t count) {
  Bfloat16 whole[kLanes] = {};
  copy_in(whole, from, count);
  return load(whole);
}
GEMLOUPE_INLINE void store(Bfloat16* to, Float x, int64_t count) {
  Bfloat16 whole[kLanes];
  store(whole, x);
  copy_in(to, whole, count);
}
GEMLOUPE_INLINE Bits load_pairs(const Bfloat16* from, int64_t count) {
  Bfloat16 whole[kPairs] = {};
  copy_in(whole, from, count);
  return load_pairs(whole);
}
#if !defined(__AVX2__)
GEMLOUPE_INLINE Float load(const float* from, int64_t count) {
  float whole[kLanes] = {};
  copy_in(whole, from, count);
  return load(whole);
}
#endif
#endif

/// In the order of `sums_of`, so that a sum's bits do not depend on which others are made with it.
GEMLOUPE_INLINE float sum_of(Float x) {
  float out[4];
  sums_of(x, x, x, x, out);
  return out[0];
}

/// sum + a · b of each lane's two numbers.
GEMLOUPE_INLINE Float add_products(Float sum, Bits a, Bits b) {
#if defined(__AVX512BF16__)
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
#else
  return fma(first_of(a), first_of(b), fma(second_of(a), second_of(b), sum));
#endif
}

/// e^x to about two ulps, 0 and infinity where it is beyond float32, NaN of NaN.
GEMLOUPE_INLINE Float exp(Float x) {
  // Beyond these it is 0 and infinity already; of an infinite power it would be NaN. max and min give their second
  // operand where one is NaN.
  const Float within = min(broadcast(200), max(broadcast(-200), x));
  const Float whole = round(within * broadcast(1.44269504F));
  // ln 2 in two parts: the first has few bits, so that its product is exact.
  Float rest = fma(whole, broadcast(-0.693359375F), within);
  rest = fma(whole, broadcast(2.12194440e-4F), rest);
  Float sum = broadcast(1.0F / 720);
  sum = fma(sum, rest, broadcast(1.0F / 120));
  sum = fma(sum, rest, broadcast(1.0F / 24));
  sum = fma(sum, rest, broadcast(1.0F / 6));
  sum = fma(sum, rest, broadcast(0.5F));
  sum = fma(sum, rest, broadcast(1.0F));
  sum = fma(sum, rest, broadcast(1.0F));
  return times_power_of_two(sum, whole);
}

#if !defined(__AVX512BW__)
GEMLOUPE_INLINE void store_exactly(Bfloat16* to, Float x) {
  store(to, x);
}
GEMLOUPE_INLINE void store_exactly(Bfloat16* to, Float x, int64_t count) {
  store(to, x, count);
}
#endif

/// x rounded to T, kept as floats. Numbers below the normal ones stay what they are, as they do in ATen: AVX512-BF16's
/// instruction, which `store` is there, takes them for 0.
template <class T>
GEMLOUPE_INLINE Float rounded_exactly_to(Float x) {
  if constexpr (sizeof(T) == sizeof(float))
    return x;
  else
    return as_bfloat16(x);
}
GEMLOUPE_INLINE void store_exactly_up_to(float* to, Float x, int64_t count) {
  count >= kLanes ? store(to, x) : store(to, x, count);
}
GEMLOUPE_INLINE void store_exactly_up_to(Bfloat16* to, Float x, int64_t count) {
  count >= kLanes ? store_exactly(to, x) : store_exactly(to, x, count);
}

/// The whole register, or the `count` numbers that are left: zeros behind them.
template <class T>
GEMLOUPE_INLINE Float load_up_to(const T* from, int64_t count) {
  return count >= kLanes ? load(from) : load(from, count);
}
template <class T>
GEMLOUPE_INLINE void store_up_to(T* to, Float x, int64_t count) {
  count >= kLanes ? store(to, x) : store(to, x, count);
}

}  // namespace
}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
