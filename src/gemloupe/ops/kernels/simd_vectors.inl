// The words of simd.h for the compiler's own vectors, of four: for a processor without either.
#pragma once

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

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

}  // namespace
}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
