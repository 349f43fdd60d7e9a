// The words of simd.h for AVX-512, with or without its bfloat16 instructions.
#pragma once

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

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

}  // namespace
}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
