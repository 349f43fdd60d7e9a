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

}  // namespace
}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include "gemloupe/ops/kernels/simd_avx512.inl"
#elif defined(__AVX2__) && defined(__FMA__)
#include "gemloupe/ops/kernels/simd_avx2.inl"
#else
#include "gemloupe/ops/kernels/simd_vectors.inl"
#endif

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

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
  return fma(second_of(a), second_of(b), fma(first_of(a), first_of(b), sum));
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
