// The order of the operations is gguf.quants's, so that every bit is equal; this file is compiled without contraction
// to fused multiply-adds.
#include "gemloupe/store/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr int kBlock = 32;

struct Q8_0 {
  uint16_t d;
  int8_t qs[kBlock];
};
static_assert(sizeof(Q8_0) == 34);

/// The largest absolute value; with a NaN among them a NaN. As integers, the bits of floats without a
/// sign are ordered, and NaNs stand above infinity.
float largest(const float* x) {
  uint32_t most = 0;
  for (int i = 0; i < kBlock; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFF);
  return std::bit_cast<float>(most <= 0x7F800000 ? most : 0x7FC00000);
}

/// Halves away from zero, as C's roundf. What is no number on the way (a NaN, an infinity times 0) is 0: numpy's
/// conversion to int8 on this processor.
int8_t rounded(float value) {
  const float size = std::fabs(value);
  const float sane = size <= 128 ? size : 0;  // above 127 stands what is infinite or a NaN, and nothing else
  int whole = static_cast<int>(sane);
  whole += static_cast<int>(2 * (sane - static_cast<float>(whole)));
  return static_cast<int8_t>(value < 0 ? -whole : whole);
}

Q8_0 packed(const float* x) {
  Q8_0 block;
  const float scale = largest(x) / 127;
  const float inverse = scale == 0 ? 0 : 1 / scale;
  block.d = float_to_half(scale);
  for (int i = 0; i < kBlock; ++i) block.qs[i] = rounded(x[i] * inverse);
  return block;
}

}  // namespace

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), size = bits & 0x7FFFFFFF;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (size > 0x7F800000) {  // a NaN: its upper bits, and never those of infinity
    const auto payload = static_cast<uint16_t>(size >> 13 & 0x3FF);
    return static_cast<uint16_t>(sign | 0x7C00 | (payload ? payload : 1));
  }
  if (size >= 0x47800000) return sign | 0x7C00;  // 65536 and above
  if (size < 0x38800000) {  // below the smallest normal half: one addition rounds to its multiples of 2^-24
    const float shifted = std::bit_cast<float>(size) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000));
  }
  const uint32_t rebased = size - (112U << 23), odd = rebased >> 13 & 1;
  return static_cast<uint16_t>(sign | (rebased + 0xFFF + odd) >> 13);  // a carry may reach the exponent, up to infinity
}

uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 64);  // quiet
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

bool can_quantize_to(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::Q8_0;
}

void quantize(DType dtype, const float* values, int64_t elements, std::byte* out) {
  check(can_quantize_to(dtype) && elements % traits(dtype).block_size == 0,
        "quantize() makes whole blocks of its types");
  if (elements == 0) return;
  if (dtype == DType::F32) {
    std::memcpy(out, values, static_cast<size_t>(elements) * sizeof(float));
  } else if (dtype == DType::Q8_0) {
    for (int64_t i = 0; i < elements; i += kBlock, out += sizeof(Q8_0)) {
      const Q8_0 block = packed(values + i);
      std::memcpy(out, &block, sizeof(block));
    }
  } else {
    const auto narrow = dtype == DType::F16 ? float_to_half : float_to_bfloat16;
    for (int64_t i = 0; i < elements; ++i, out += sizeof(uint16_t)) {
      const uint16_t narrowed = narrow(values[i]);
      std::memcpy(out, &narrowed, sizeof(narrowed));
    }
  }
}

}  // namespace v0
}  // namespace gemloupe
