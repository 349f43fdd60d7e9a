// The block layouts are ggml's (ggml-common.h). The order of the operations is gguf.quants's, so that every bit is
// equal; this file is compiled without contraction to fused multiply-adds.
#include "gemloupe/store/dequantize.h"

#include <bit>
#include <cstring>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/tensor_bytes.h"

namespace gemloupe {
inline namespace v0 {
namespace {

using Half = uint16_t;

inline float widen_half(Half half) {
  // Signed, because SSE2 compares no unsigned numbers. All halves fit.
  const int32_t sign = half & 0x8000, rest = (half & 0x7FFF) << 13;
  const int32_t normal = rest + (112 << 23);  // the exponent's bias goes from 15 to 127
  // A subnormal half, as if its leading bit were there, less that bit: exact, and no float32 here is subnormal.
  const float small = std::bit_cast<float>(rest + (113 << 23)) - std::bit_cast<float>(113 << 23);
  int32_t bits = rest < (1 << 23) ? std::bit_cast<int32_t>(small) : normal;
  bits = rest >= (31 << 23) ? rest | 0x7F800000 : bits;
  return std::bit_cast<float>(static_cast<uint32_t>(bits) | static_cast<uint32_t>(sign) << 16);
}

inline float widen_bfloat16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

struct Q4_0 {
  Half d;
  uint8_t qs[16];

  void unpack(float* out) const {
    const float scale = widen_half(d);
    for (int j = 0; j < 16; ++j) out[j] = scale * static_cast<float>((qs[j] & 15) - 8);
    for (int j = 0; j < 16; ++j) out[j + 16] = scale * static_cast<float>((qs[j] >> 4) - 8);
  }
};

struct Q4_1 {
  Half d, m;
  uint8_t qs[16];

  void unpack(float* out) const {
    const float scale = widen_half(d), least = widen_half(m);
    for (int j = 0; j < 16; ++j) out[j] = scale * static_cast<float>(qs[j] & 15) + least;
    for (int j = 0; j < 16; ++j) out[j + 16] = scale * static_cast<float>(qs[j] >> 4) + least;
  }
};

/// The fifth bits of 32 elements, each as 0 or 16.
struct FifthBits {
  uint8_t bits[4];

  void unpack(int (&high)[32]) const {
    uint32_t all;
    std::memcpy(&all, bits, sizeof(all));
    for (int j = 0; j < 32; ++j) high[j] = (all & (1u << j)) ? 16 : 0;
  }
};

struct Q5_0 {
  Half d;
  FifthBits qh;
  uint8_t qs[16];

  void unpack(float* out) const {
    const float scale = widen_half(d);
    int high[32];
    qh.unpack(high);
    for (int j = 0; j < 16; ++j) out[j] = scale * static_cast<float>(((qs[j] & 15) | high[j]) - 16);
    for (int j = 0; j < 16; ++j) out[j + 16] = scale * static_cast<float>(((qs[j] >> 4) | high[j + 16]) - 16);
  }
};

struct Q5_1 {
  Half d, m;
  FifthBits qh;
  uint8_t qs[16];

  void unpack(float* out) const {
    const float scale = widen_half(d), least = widen_half(m);
    int high[32];
    qh.unpack(high);
    for (int j = 0; j < 16; ++j) out[j] = scale * static_cast<float>((qs[j] & 15) | high[j]) + least;
    for (int j = 0; j < 16; ++j) out[j + 16] = scale * static_cast<float>((qs[j] >> 4) | high[j + 16]) + least;
  }
};

struct Q8_0 {
  Half d;
  int8_t qs[32];

  void unpack(float* out) const {
    const float scale = widen_half(d);
    for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(qs[j]) * scale;
  }
};

struct Q2_K {
  uint8_t scales[16];  // low half: scale, high half: minimum, of 16 elements
  uint8_t qs[64];
  Half d, dmin;

  void unpack(float* out) const {
    const float scale = widen_half(d), least = widen_half(dmin);
    for (int group = 0; group < 16; ++group) {
      const float dl = scale * static_cast<float>(scales[group] & 15),
                  ml = least * static_cast<float>(scales[group] >> 4);
      const uint8_t* q = qs + group / 8 * 32 + group % 2 * 16;
      const int shift = group % 8 / 2 * 2;
      for (int j = 0; j < 16; ++j) out[group * 16 + j] = dl * static_cast<float>((q[j] >> shift) & 3) - ml;
    }
  }
};

struct Q3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  Half d;

  int group_scale(int group) const {
    const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
    const int high = (scales[8 + group % 4] >> (group / 4 * 2)) & 3;
    return (low | (high << 4)) - 32;
  }

  void unpack(float* out) const {
    const float scale = widen_half(d);
    for (int group = 0; group < 16; ++group) {
      const float dl = scale * static_cast<float>(group_scale(group));
      const uint8_t* q = qs + group / 8 * 32 + group % 2 * 16;
      const uint8_t* h = hmask + group % 2 * 16;
      const int shift = group % 8 / 2 * 2, bit = 1 << (group / 2);
      for (int j = 0; j < 16; ++j) {  // the offset is zero where the mask's bit is 1
        const int value = ((q[j] >> shift) & 3) - ((h[j] & bit) ? 0 : 4);
        out[group * 16 + j] = dl * static_cast<float>(value);
      }
    }
  }
};

/// Eight scales and minima of 6 bits, each for 32 elements.
struct SixBitScales {
  uint8_t bytes[12];

  int scale(int i) const { return i < 4 ? bytes[i] & 63 : (bytes[i + 4] & 15) | ((bytes[i - 4] >> 2) & 48); }
  int least(int i) const { return i < 4 ? bytes[i + 4] & 63 : (bytes[i + 4] >> 4) | ((bytes[i] >> 2) & 48); }
};

struct Q4_K {
  Half d, dmin;
  SixBitScales scales;
  uint8_t qs[128];

  void unpack(float* out) const {
    const float scale = widen_half(d), least = widen_half(dmin);
    auto dl = [&](int group) { return scale * static_cast<float>(scales.scale(group)); };
    auto ml = [&](int group) { return least * static_cast<float>(scales.least(group)); };
    for (int pair = 0; pair < 4; ++pair, out += 64) {
      const uint8_t* q = qs + pair * 32;
      const float d0 = dl(2 * pair), m0 = ml(2 * pair), d1 = dl(2 * pair + 1), m1 = ml(2 * pair + 1);
      for (int j = 0; j < 32; ++j) out[j] = d0 * static_cast<float>(q[j] & 15) - m0;
      for (int j = 0; j < 32; ++j) out[j + 32] = d1 * static_cast<float>(q[j] >> 4) - m1;
    }
  }
};

struct Q5_K {
  Half d, dmin;
  SixBitScales scales;
  uint8_t qh[32];
  uint8_t qs[128];

  void unpack(float* out) const {
    const float scale = widen_half(d), least = widen_half(dmin);
    for (int group = 0; group < 8; ++group) {
      const float dl = scale * static_cast<float>(scales.scale(group));
      const float ml = least * static_cast<float>(scales.least(group));
      const uint8_t* q = qs + group / 2 * 32;
      const int shift = group % 2 * 4, bit = 1 << group;
      for (int j = 0; j < 32; ++j) {
        const int value = ((q[j] >> shift) & 15) | ((qh[j] & bit) ? 16 : 0);
        out[group * 32 + j] = dl * static_cast<float>(value) - ml;
      }
    }
  }
};

struct Q6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  Half d;

  void unpack(float* out) const {
    const float scale = widen_half(d);
    for (int group = 0; group < 16; ++group) {
      const float dl = scale * static_cast<float>(scales[group]);
      const int half = group / 8, within = group % 8;
      const uint8_t* low = ql + half * 64 + within % 4 * 16;
      const uint8_t* high = qh + half * 32 + within % 2 * 16;
      const int low_shift = within / 4 * 4, high_shift = within / 2 * 2;
      for (int j = 0; j < 16; ++j) {
        const int value = ((low[j] >> low_shift) & 15) | (((high[j] >> high_shift) & 3) << 4);
        out[group * 16 + j] = dl * static_cast<float>(value - 32);
      }
    }
  }
};

template <class Block>
void unpack_blocks(DType dtype, const std::byte* in, int64_t elements, float* out) {
  const DTypeTraits& type = traits(dtype);
  check(sizeof(Block) == static_cast<size_t>(type.block_bytes), "a block's layout");
  for (int64_t at = 0; at < elements; at += type.block_size, in += sizeof(Block)) {
    Block block;
    std::memcpy(&block, in, sizeof(Block));
    block.unpack(out + at);
  }
}

template <class Element, class Widen>
void widen_elements(const std::byte* in, int64_t elements, float* out, Widen widen) {
  for (int64_t i = 0; i < elements; ++i) {
    Element element;
    std::memcpy(&element, in + i * static_cast<int64_t>(sizeof(Element)), sizeof(Element));
    out[i] = widen(element);
  }
}

void unpack(DType dtype, const std::byte* in, int64_t n, float* out) {
  switch (dtype) {
    case DType::F32:
      std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::F64:
      return widen_elements<double>(in, n, out, [](double x) { return static_cast<float>(x); });
    case DType::F16:
      return widen_elements<Half>(in, n, out, widen_half);
    case DType::BF16:
      return widen_elements<uint16_t>(in, n, out, widen_bfloat16);
    case DType::Q4_0:
      return unpack_blocks<Q4_0>(dtype, in, n, out);
    case DType::Q4_1:
      return unpack_blocks<Q4_1>(dtype, in, n, out);
    case DType::Q5_0:
      return unpack_blocks<Q5_0>(dtype, in, n, out);
    case DType::Q5_1:
      return unpack_blocks<Q5_1>(dtype, in, n, out);
    case DType::Q8_0:
      return unpack_blocks<Q8_0>(dtype, in, n, out);
    case DType::Q2_K:
      return unpack_blocks<Q2_K>(dtype, in, n, out);
    case DType::Q3_K:
      return unpack_blocks<Q3_K>(dtype, in, n, out);
    case DType::Q4_K:
      return unpack_blocks<Q4_K>(dtype, in, n, out);
    case DType::Q5_K:
      return unpack_blocks<Q5_K>(dtype, in, n, out);
    case DType::Q6_K:
      return unpack_blocks<Q6_K>(dtype, in, n, out);
    default:
      throw InternalError("dequantize() of a tensor of " + std::string(traits(dtype).name));
  }
}

int64_t row_length(const StoredTensor& tensor) {
  return tensor.shape.empty() ? 1 : tensor.shape.back();
}

}  // namespace

int64_t row_count(const StoredTensor& tensor) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  return rows;
}

void dequantize_rows(const StoredTensor& tensor, int64_t first, int64_t rows, float* out) {
  check(0 <= first && 0 <= rows && first <= row_count(tensor) - rows, "dequantize_rows() outside the tensor");
  const DTypeTraits& type = traits(tensor.dtype);
  const int64_t length = row_length(tensor), row_bytes = length / type.block_size * type.block_bytes;
  if (rows * length > 0) unpack(tensor.dtype, tensor.data + first * row_bytes, rows * length, out);
}

void dequantize(const StoredTensor& tensor, float* out) {
  dequantize_rows(tensor, 0, row_count(tensor), out);
}

float half_to_float(uint16_t half) {
  return widen_half(half);
}
float bfloat16_to_float(uint16_t value) {
  return widen_bfloat16(value);
}

}  // namespace v0
}  // namespace gemloupe
