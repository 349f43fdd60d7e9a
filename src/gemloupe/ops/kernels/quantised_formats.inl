// ggml's blocks (ggml-common.h; store/dequantize.cpp has them one number at a time) in two stages: all numbers of a
// block as bytes, by operations on whole registers of bytes, and one scale (and minimum) for each group of them. From
// there all formats are alike: a weight is byte * scale - minimum.
//
// The bytes are the compiler's own vectors, which it makes of whatever registers this file is compiled for.
#pragma once

#include "gemloupe/ops/kernels/simd.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

template <int Count>
struct BytesOf {
  typedef uint8_t Type __attribute__((vector_size(Count)));
  typedef uint16_t Words __attribute__((vector_size(Count)));
};
template <int Count>
using Bytes = typename BytesOf<Count>::Type;

template <int Count>
GEMLOUPE_INLINE Bytes<Count> bytes_at(const uint8_t* from) {
  Bytes<Count> bytes;
  memcpy(&bytes, from, Count);
  return bytes;
}

/// There are no shifts of bytes: the bits that come from the neighbour are for the caller to clear.
template <int By, class Vector>
GEMLOUPE_INLINE Vector shifted_right(Vector bytes) {
  using Words = typename BytesOf<sizeof(Vector)>::Words;
  return reinterpret_cast<Vector>(By >= 0 ? reinterpret_cast<Words>(bytes) >> larger(By, 0)
                                          : reinterpret_cast<Words>(bytes) << larger(-By, 0));
}

template <class Vector>
GEMLOUPE_INLINE void put_bytes(int8_t* to, Vector bytes) {
  memcpy(to, &bytes, sizeof bytes);
}

using Half = uint16_t;

GEMLOUPE_INLINE float as_float(int32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

GEMLOUPE_INLINE float widened(Half half) {
#if defined(__AVX512F__)
  return _mm512_cvtss_f32(_mm512_cvtph_ps(_mm256_castsi128_si256(_mm_cvtsi32_si128(half))));
#else
  const int32_t sign = half & 0x8000, rest = (half & 0x7fff) << 13;
  // A subnormal half, as if its leading bit were there, less that bit: exact, and no float here is subnormal.
  const float small = as_float(rest + (113 << 23)) - as_float(113 << 23);
  const int32_t bias = rest < 31 << 23 ? 112 << 23 : 224 << 23;
  int32_t bits;
  memcpy(&bits, &small, sizeof bits);
  bits = rest < 1 << 23 ? bits : rest + bias;
  return as_float(static_cast<int32_t>(static_cast<uint32_t>(bits) | static_cast<uint32_t>(sign) << 16));
#endif
}

/// The first of the signed bytes, as many as there are lanes.
GEMLOUPE_INLINE Float floats_of(Bytes<16> bytes) {
#if defined(__AVX512BW__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(reinterpret_cast<__m128i>(bytes)));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(reinterpret_cast<__m128i>(bytes)));
#else
  typedef int8_t Signed __attribute__((vector_size(16)));
  const auto numbers = reinterpret_cast<Signed>(bytes);
  return __builtin_convertvector((Bits{numbers[0], numbers[1], numbers[2], numbers[3]}), Float);
#endif
}
GEMLOUPE_INLINE Float floats_of(const int8_t* bytes) {
#if defined(__AVX512BW__)
  return floats_of(reinterpret_cast<Bytes<16>>(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
#elif defined(__AVX2__)
  return floats_of(reinterpret_cast<Bytes<16>>(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))));
#else
  return __builtin_convertvector((Bits{bytes[0], bytes[1], bytes[2], bytes[3]}), Float);
#endif
}

/// a · b - c, rounded as fma.
GEMLOUPE_INLINE Float product_less(Float a, Float b, Float c) {
#if defined(__AVX512F__)
  return _mm512_fmsub_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmsub_ps(a, b, c);
#else
  return a * b - c;
#endif
}

/// A block as bytes and scales; those of several groups are written a register at a time.
template <class Block>
struct Unpacked {
  static constexpr int kScales = Block::kElements > Block::kGroup ? 16 : 1;
  const int8_t* bytes;
  int8_t room[Block::kElements];
  float scale[kScales], least[kScales];
};

/// 16 bytes of two numbers each as 32 bytes, the lower halves first.
GEMLOUPE_INLINE Bytes<32> halves_of(const uint8_t* from) {
  typedef uint64_t Eights __attribute__((vector_size(16)));
  const auto low = bytes_at<16>(from), high = shifted_right<4>(low);
  const auto both = __builtin_shufflevector(reinterpret_cast<Eights>(low), reinterpret_cast<Eights>(high), 0, 1, 2, 3);
  return reinterpret_cast<Bytes<32>>(both) & 15;
}

/// 0xff for each of 32 bits that is 0: each byte of the bits eight times, of which each looks at one bit (ggml's way).
GEMLOUPE_INLINE Bytes<32> where_clear(uint32_t bits) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  return reinterpret_cast<Bytes<32>>(_mm256_movm_epi8(~bits));
#elif defined(__AVX2__)
  const __m256i each = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), each);
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  return reinterpret_cast<Bytes<32>>(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), __m256i{}));
#else  // by eights: compilers compare registers of bytes that the machine lacks one by one
  typedef uint64_t Eights __attribute__((vector_size(32)));
  const uint64_t each = 0x0101010101010101, low = each * 127;
  Eights found = {bits & 255, bits >> 8 & 255, bits >> 16 & 255, bits >> 24};
  for (int i = 0; i < 4; ++i) {
    const uint64_t looked = found[i] * each & 0x8040201008040201;
    const uint64_t clear = ~(((looked & low) + low) | looked) >> 7 & each;  // the highest bit is there where any is
    found[i] = clear * 255;
  }
  return reinterpret_cast<Bytes<32>>(found);
#endif
}

struct Q8_0 {
  static constexpr int kElements = 32, kGroup = 32;
  static constexpr bool kLeast = false;
  Half d;
  int8_t qs[32];

  GEMLOUPE_INLINE void unpack(Unpacked<Q8_0>& out) const {
    out.bytes = qs;
    out.scale[0] = widened(d);
  }
};

struct Q5_0 {
  static constexpr int kElements = 32, kGroup = 32;
  static constexpr bool kLeast = false;
  Half d, fifth[2];
  uint8_t qs[16];

  GEMLOUPE_INLINE void unpack(Unpacked<Q5_0>& out) const {
    // 16 less where the fifth bit is 0, which is to set all above the fourth.
    put_bytes(out.room, halves_of(qs) | (where_clear(fifth[0] | uint32_t{fifth[1]} << 16) & 0xf0));
    out.bytes = out.room;
    out.scale[0] = widened(d);
  }
};

struct Q4_0 {
  static constexpr int kElements = 32, kGroup = 32;
  static constexpr bool kLeast = false;
  Half d;
  uint8_t qs[16];

  GEMLOUPE_INLINE void unpack(Unpacked<Q4_0>& out) const {
    put_bytes(out.room, halves_of(qs) - 8);
    out.bytes = out.room;
    out.scale[0] = widened(d);
  }
};

/// Eight scales and eight minima of 6 bits, each for 32 elements: of the first four the low six bits of bytes 0 to 3
/// and 4 to 7, whose upper bits are those of the last four, whose lower ones are the halves of bytes 8 to 11.
struct SixBitScales {
  uint32_t words[3];

  static GEMLOUPE_INLINE void put_products(float factor, const uint32_t (&eight)[2], float* to) {
    typedef uint32_t Words __attribute__((vector_size(16)));
    for (int i = 0; i < 8; i += static_cast<int>(kLanes)) {
      const Words bytes = {eight[i / 4], eight[1], 0, 0};
      store(to + i, broadcast(factor) * floats_of(reinterpret_cast<Bytes<16>>(bytes)));
    }
  }

  template <class Block>
  GEMLOUPE_INLINE void unpack(float scale, float least, Unpacked<Block>& out) const {
    const uint32_t a = words[0], b = words[1], c = words[2], six = 0x3f3f3f3f, low = 0x0f0f0f0f, high = 0x30303030;
    const uint32_t of_scales[2] = {a & six, (c & low) | (a >> 2 & high)};
    const uint32_t of_leasts[2] = {b & six, (c >> 4 & low) | (b >> 2 & high)};
    put_products(scale, of_scales, out.scale);
    put_products(least, of_leasts, out.least);
  }
} __attribute__((packed, aligned(2)));

struct Q4_K {
  static constexpr int kElements = 256, kGroup = 32;
  static constexpr bool kLeast = true;
  Half d, dmin;
  SixBitScales scales;
  uint8_t qs[128];

  GEMLOUPE_INLINE void unpack(Unpacked<Q4_K>& out) const {
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
      const auto q = bytes_at<32>(qs + pair * 32);
      put_bytes(out.room + pair * 64, q & 15);
      put_bytes(out.room + pair * 64 + 32, shifted_right<4>(q) & 15);
    }
    out.bytes = out.room;
    scales.unpack(widened(d), widened(dmin), out);
  }
};

struct Q5_K {
  static constexpr int kElements = 256, kGroup = 32;
  static constexpr bool kLeast = true;
  Half d, dmin;
  SixBitScales scales;
  uint8_t fifth[32];
  uint8_t qs[128];

  template <int Pair>
  GEMLOUPE_INLINE void unpack_pair(Bytes<32> fifths, int8_t* to) const {
    const auto q = bytes_at<32>(qs + Pair * 32);
    put_bytes(to + Pair * 64, (q & 15) | (shifted_right<2 * Pair - 4>(fifths) & 16));
    put_bytes(to + Pair * 64 + 32, (shifted_right<4>(q) & 15) | (shifted_right<2 * Pair - 3>(fifths) & 16));
  }

  GEMLOUPE_INLINE void unpack(Unpacked<Q5_K>& out) const {
    const auto fifths = bytes_at<32>(fifth);  // of the eight groups, a bit each
    unpack_pair<0>(fifths, out.room);
    unpack_pair<1>(fifths, out.room);
    unpack_pair<2>(fifths, out.room);
    unpack_pair<3>(fifths, out.room);
    out.bytes = out.room;
    scales.unpack(widened(d), widened(dmin), out);
  }
};

struct Q6_K {
  static constexpr int kElements = 256, kGroup = 16;
  static constexpr bool kLeast = false;
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  Half d;

  GEMLOUPE_INLINE void unpack(Unpacked<Q6_K>& out) const {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const auto a = bytes_at<32>(low + half * 64), b = bytes_at<32>(low + half * 64 + 32);
      const auto h = bytes_at<32>(high + half * 32);
      int8_t* to = out.room + half * 128;
      put_bytes(to, ((a & 15) | (shifted_right<-4>(h) & 48)) - 32);
      put_bytes(to + 32, ((b & 15) | (shifted_right<-2>(h) & 48)) - 32);
      put_bytes(to + 64, ((shifted_right<4>(a) & 15) | (h & 48)) - 32);
      put_bytes(to + 96, ((shifted_right<4>(b) & 15) | (shifted_right<2>(h) & 48)) - 32);
    }
    out.bytes = out.room;
    const Float scale = broadcast(widened(d));
    for (int i = 0; i < 16; i += static_cast<int>(kLanes)) store(out.scale + i, scale * floats_of(scales + i));
  }
};

}  // namespace
}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
