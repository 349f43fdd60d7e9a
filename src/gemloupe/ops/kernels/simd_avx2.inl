// The words of simd.h for AVX2 with FMA.
#pragma once

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

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

}  // namespace
}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
