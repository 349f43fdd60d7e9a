#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gemloupe/ops/kernels/quantised.h"
#include "gemloupe/ops/kernels/table.h"
#include "ops/tensors.h"

using namespace gemloupe::ops::kernels;

namespace {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

struct Named {
  QuantisedFormat format;
  const char* name;
  int elements, bytes;
  std::vector<int> halves;  ///< where a block's scales lie
};

const std::vector<Named> kFormats = {
    {QuantisedFormat::Q8_0, "Q8_0", 32, 34, {0}},      {QuantisedFormat::Q5_0, "Q5_0", 32, 22, {0}},
    {QuantisedFormat::Q4_0, "Q4_0", 32, 18, {0}},      {QuantisedFormat::Q4_K, "Q4_K", 256, 144, {0, 2}},
    {QuantisedFormat::Q5_K, "Q5_K", 256, 176, {0, 2}}, {QuantisedFormat::Q6_K, "Q6_K", 256, 210, {208}},
};

float widened(const uint8_t* at) {
  const int bits = at[0] | at[1] << 8, exponent = bits >> 10 & 31, rest = bits & 1023;
  const float size = exponent == 31  ? (rest ? std::numeric_limits<float>::quiet_NaN() : INFINITY)
                     : exponent == 0 ? std::ldexp(static_cast<float>(rest), -24)
                                     : std::ldexp(static_cast<float>(rest + 1024), exponent - 25);
  return std::copysign(size, bits & 0x8000 ? -1.0F : 1.0F);
}

/// Not fused with what follows, on any machine.
float product(float a, int b) {
  volatile float rounded = a * static_cast<float>(b);
  return rounded;
}

/// One number of a block, by the format's definition.
float element(QuantisedFormat format, const uint8_t* block, int i) {
  const float d = widened(block);
  auto half = [](int byte, bool upper) { return upper ? byte >> 4 : byte & 15; };
  auto six_bits = [&](const uint8_t* scales, int group, int shift) {  // shift 0 for the scale, 4 for the minimum
    const uint8_t* lower = scales + shift;
    return group < 4 ? lower[group] & 63 : half(scales[group + 4], shift) | lower[group - 4] >> 6 << 4;
  };
  switch (format) {
    case QuantisedFormat::Q8_0:
      return product(d, static_cast<int8_t>(block[2 + i]));
    case QuantisedFormat::Q5_0:
      return product(d, (half(block[6 + i % 16], i >= 16) | (block[2 + i / 8] >> i % 8 & 1) << 4) - 16);
    case QuantisedFormat::Q4_0:
      return product(d, half(block[2 + i % 16], i >= 16) - 8);
    case QuantisedFormat::Q4_K:
    case QuantisedFormat::Q5_K: {
      const bool five = format == QuantisedFormat::Q5_K;
      const int group = i / 32, fifth = five ? (block[16 + i % 32] >> group & 1) << 4 : 0;
      const int q = half(block[(five ? 48 : 16) + i / 64 * 32 + i % 32], group % 2) | fifth;
      return product(product(d, six_bits(block + 4, group, 0)), q) -
             product(widened(block + 2), six_bits(block + 4, group, 4));
    }
    case QuantisedFormat::Q6_K: {
      const int within = i % 128;
      const int high = block[128 + i / 128 * 32 + i % 32] >> within / 32 * 2 & 3;
      const int q = half(block[i / 128 * 64 + within % 64], within >= 64) | high << 4;
      return product(product(widened(block + 208), static_cast<int8_t>(block[192 + i / 16])), q - 32);
    }
  }
  return 0;
}

struct Weight {
  Named format;
  int64_t width, in;
  Bytes store;      ///< starts two bytes early: a weight in a file has no better place
  Floats elements;  ///< dequantised
  const uint8_t* data() const { return store.data() + 2; }
  int64_t blocks() const { return width * in / format.elements; }
};

/// Any bits in the blocks; their scales are those of weights, or, `extreme`, among others the least and the largest.
Weight random_weight(const Named& format, int64_t width, int64_t in, bool extreme, uint32_t seed = 1) {
  Weight weight{format, width, in, {}, {}};
  std::mt19937 random(seed);
  weight.store.resize(2 + weight.blocks() * format.bytes);
  for (uint8_t& byte : weight.store) byte = static_cast<uint8_t>(random());
  const std::vector<int> scales = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x3c00, 0x1e66, 0xa001};
  for (int64_t b = 0; b < weight.blocks(); ++b) {
    uint8_t* block = weight.store.data() + 2 + b * format.bytes;
    for (int at : format.halves) {
      const int half = extreme ? scales[random() % scales.size()] : 0x1c00 + static_cast<int>(random() % 0x800);
      block[at] = static_cast<uint8_t>(half), block[at + 1] = static_cast<uint8_t>(half >> 8);
    }
    for (int i = 0; i < format.elements; ++i) weight.elements.push_back(element(format.format, block, i));
  }
  return weight;
}

Floats random_floats(int64_t count, uint32_t seed = 7) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats x(static_cast<size_t>(count));
  for (float& value : x) value = normal(random);
  return x;
}

bool same_bits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

uint16_t rounded(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

constexpr float kUntouched = 12345;

Floats multiply(const Table& table, const Floats& x, const Weight& weight, int64_t begin = 0, int64_t end = -1) {
  const int64_t rows = static_cast<int64_t>(x.size()) / weight.in;
  Floats out(static_cast<size_t>(rows * weight.width), kUntouched);
  const QuantisedProduct<float> p{x.data(), weight.data(), out.data(), rows, weight.in, weight.width};
  table.quantised.of(weight.format.format).multiply_f32(p, begin, end < 0 ? weight.width : end);
  return out;
}

/// Against sums in float64: within `tolerance` of what the sum would be, were all numbers positive and each weight its
/// block's largest.
void check_product(const Floats& found, const Floats& x, const Weight& weight, double tolerance = 3e-6) {
  const int64_t rows = static_cast<int64_t>(x.size()) / weight.in;
  double worst = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < weight.width; ++c) {
      double sum = 0, size = 1e-30;
      for (int64_t block = 0; block < weight.in; block += weight.format.elements) {
        double largest = 0, sizes = 0;
        for (int64_t i = block; i < block + weight.format.elements; ++i) {
          const double a = x[r * weight.in + i], w = weight.elements[c * weight.in + i];
          sum += a * w, sizes += std::abs(a), largest = std::max(largest, std::abs(w));
        }
        size += sizes * largest;
      }
      worst = std::max(worst, std::abs(found[r * weight.width + c] - sum) / size);
    }
  CHECK(worst < tolerance);
}

template <class Check>
void everywhere(Check check) {
  for (const Table* table : tables())
    for (const Named& format : kFormats) {
      CAPTURE(table->name);
      CAPTURE(format.name);
      check(*table, format);
    }
}

}  // namespace

TEST_CASE("quantised: the blocks' sizes") {
  everywhere([](const Table& table, const Named& format) {
    CHECK(table.quantised.of(format.format).block_elements == format.elements);
    CHECK(table.quantised.of(format.format).block_bytes == format.bytes);
  });
}

TEST_CASE("quantised: dequantised to the bits of the formats' definition, float32 and bfloat16, whatever the scales") {
  everywhere([](const Table& table, const Named& format) {
    const Weight weight = random_weight(format, 40, 256, true);
    const QuantisedFormatLoops& loops = table.quantised.of(format.format);
    const size_t count = weight.elements.size();
    Floats wide(count + 1, kUntouched);
    loops.dequantise_f32(weight.data(), weight.blocks(), wide.data());
    CHECK(same_bits(wide.data(), weight.elements.data(), static_cast<int64_t>(count)));
    CHECK(wide[count] == kUntouched);
    std::vector<Bfloat16> narrow(count + 1, Bfloat16{1});
    loops.dequantise_bf16(weight.data(), weight.blocks(), narrow.data());
    bool same = true;
    for (size_t i = 0; i < count; ++i) same = same && narrow[i].bits == rounded(wide[i]);
    CHECK(same);
    CHECK(narrow[count].bits == 1);
  });
}

TEST_CASE("quantised: scales that are no numbers") {
  everywhere([](const Table& table, const Named& format) {
    for (int half : {0x7c00, 0xfc00, 0x7e00, 0x7d01}) {
      Weight weight = random_weight(format, 1, 256, false);
      uint8_t* block = weight.store.data() + 2;
      const int at = format.halves[0];
      block[at] = static_cast<uint8_t>(half), block[at + 1] = static_cast<uint8_t>(half >> 8);
      Floats found(256);
      table.quantised.of(format.format).dequantise_f32(weight.data(), weight.blocks(), found.data());
      bool same = true;
      for (int i = 0; i < format.elements; ++i) {
        const float expected = element(format.format, block, i);
        same = same && (found[i] == expected || (std::isnan(found[i]) && std::isnan(expected)));
      }
      CHECK(same);
      CHECK(!std::isfinite(multiply(table, random_floats(256), weight)[0]));
    }
  });
}

TEST_CASE("quantised: products of any number of rows and columns") {
  everywhere([](const Table& table, const Named& format) {
    for (int64_t rows = 1; rows <= 9; ++rows)
      for (int64_t width : {1, 3, 7, 12})
        for (int64_t blocks : {1, 3}) {
          CAPTURE(rows);
          CAPTURE(width);
          CAPTURE(blocks);
          const bool extreme = (rows + width) % 2 != 0;
          const Weight weight = random_weight(format, width, blocks * format.elements, extreme);
          const Floats x = random_floats(rows * weight.in);
          check_product(multiply(table, x, weight), x, weight);
        }
  });
}

TEST_CASE("quantised: long rows, outliers among small numbers, zeros") {
  everywhere([](const Table& table, const Named& format) {
    const Weight weight = random_weight(format, 5, 6912, false);
    Floats x = random_floats(3 * weight.in);
    for (int64_t i = 0; i < weight.in; ++i) x[i] = i % 97 == 5 ? 1e4F : x[i] * 1e-3F;
    for (int64_t i = 0; i < weight.in; ++i) x[weight.in + i] = i / 32 % 2 ? 0 : x[weight.in + i];
    for (int64_t i = 2 * weight.in; i < 3 * weight.in; ++i) x[i] = i % 2 ? -0.0F : 0;
    const Floats out = multiply(table, x, weight);
    check_product(out, x, weight);
    for (int64_t c = 0; c < weight.width; ++c) CHECK(out[2 * weight.width + c] == 0);
  });
}

TEST_CASE("quantised: a row's bits depend neither on the other rows nor on the columns computed with it") {
  everywhere([](const Table& table, const Named& format) {
    const Weight weight = random_weight(format, 19, 512, false);
    const Floats x = random_floats(9 * weight.in);
    const Floats all = multiply(table, x, weight);
    for (int64_t rows = 1; rows < 9; ++rows)
      for (int64_t first = 0; first + rows <= 9; ++first) {
        const Floats some(x.begin() + first * weight.in, x.begin() + (first + rows) * weight.in);
        CHECK(same_bits(multiply(table, some, weight).data(), all.data() + first * weight.width, rows * weight.width));
      }
    for (int64_t begin = 0; begin <= weight.width; begin += 3)
      for (int64_t end = begin; end <= weight.width; end += 2) {
        const Floats part = multiply(table, x, weight, begin, end);
        bool same = true;
        for (int64_t i = 0; i < static_cast<int64_t>(part.size()); ++i) {
          const int64_t c = i % weight.width;
          same = same && part[i] == (begin <= c && c < end ? all[i] : kUntouched);
        }
        CHECK(same);
      }
  });
}

TEST_CASE("quantised: unpacked weights have the same products, in float32 and bfloat16, bit for bit") {
  everywhere([](const Table& table, const Named& format) {
    const Weight weight = random_weight(format, 23, 3 * 256, false);
    const Floats x = random_floats(37 * weight.in), expected = multiply(table, x, weight);
    Floats unpacked(weight.elements.size()), wide(expected.size());
    table.quantised.of(format.format).unpack(weight.data(), weight.blocks(), unpacked.data());
    table.linear.f32({x.data(), unpacked.data(), wide.data(), 37, weight.in, weight.width}, 0, weight.width);
    CHECK(same_bits(wide.data(), expected.data(), 37 * weight.width));
    std::vector<Bfloat16> narrow(wide.size());
    table.linear.f32_to_bf16({x.data(), unpacked.data(), narrow.data(), 37, weight.in, weight.width}, 0, weight.width);
    bool same = true;
    for (size_t i = 0; i < wide.size(); ++i) same = same && narrow[i].bits == rounded(wide[i]);
    CHECK(same);
  });
}

TEST_CASE("quantised: a row's product is the same among many") {
  for (const Named& format : kFormats) {
    CAPTURE(format.name);
    const Weight weight = random_weight(format, 70, 512, false);
    const at::Tensor bytes = at::empty({weight.width, weight.blocks() / weight.width * format.bytes}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), weight.data(), static_cast<size_t>(bytes.numel()));
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = at::randn({40, weight.in}, at::kFloat).to(dtype);
      const at::Tensor all = quantised_linear(x, bytes, format.format);
      CHECK((all.scalar_type() == dtype));
      for (int64_t row : {0, 17, 39})
        CHECK(quantised_linear(x.narrow(0, row, 1), bytes, format.format).equal(all.narrow(0, row, 1)));
      CHECK(quantised_linear(x.narrow(0, 3, 9), bytes, format.format).equal(all.narrow(0, 3, 9)));
    }
  }
}

TEST_CASE("quantised: NaN and infinity reach all of their row, and no other") {
  everywhere([](const Table& table, const Named& format) {
    const Weight weight = random_weight(format, 6, 512, false);
    const Floats x = random_floats(4 * weight.in), clean = multiply(table, x, weight);
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), INFINITY, -INFINITY}) {
      Floats spoilt = x;
      spoilt[2 * weight.in + 300] = bad;
      const Floats out = multiply(table, spoilt, weight);
      CHECK(same_bits(out.data(), clean.data(), 2 * weight.width));
      CHECK(same_bits(out.data() + 3 * weight.width, clean.data() + 3 * weight.width, weight.width));
      for (int64_t c = 0; c < weight.width; ++c) {
        const float found = out[2 * weight.width + c], expected = bad * weight.elements[c * weight.in + 300];
        CHECK((found == expected || (std::isnan(found) && std::isnan(expected))));
      }
    }
  });
}

TEST_CASE("quantised: bfloat16 of the product is the float32 rounded") {
  everywhere([](const Table& table, const Named& format) {
    const Weight weight = random_weight(format, 7, 256, false);
    const Floats x = random_floats(5 * weight.in), wide = multiply(table, x, weight);
    std::vector<Bfloat16> narrow(wide.size());
    const QuantisedProduct<Bfloat16> p{x.data(), weight.data(), narrow.data(), 5, weight.in, weight.width};
    table.quantised.of(format.format).multiply_bf16(p, 0, weight.width);
    bool same = true;
    for (size_t i = 0; i < wide.size(); ++i) same = same && narrow[i].bits == rounded(wide[i]);
    CHECK(same);
    const QuantisedProduct<float> none{nullptr, weight.data(), nullptr, 0, weight.in, weight.width};
    table.quantised.of(format.format).multiply_f32(none, 0, weight.width);
  });
}
