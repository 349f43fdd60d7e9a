#include <bit>
#include <limits>
#include <numeric>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/dequantize.h"
#include "gemloupe/store/gguf.h"
#include "gemloupe/store/quantize.h"
#include "gemloupe/store/tensor_bytes.h"
#include "store/files.h"

using namespace gemloupe;
using namespace store_tests;

namespace {

std::vector<float> floats(const StoredTensor& tensor) {
  std::vector<float> out(static_cast<size_t>(*element_count(tensor.shape)));
  dequantize(tensor, out.data());
  return out;
}

std::vector<std::byte> quantized(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> out(*byte_count(dtype, {static_cast<int64_t>(values.size())}));
  quantize(dtype, values.data(), static_cast<int64_t>(values.size()), out.data());
  return out;
}

}  // namespace

TEST_CASE("quantize: every bit is the reference's, for every type") {
  const GgufFile file = read_gguf(tests_folder() / "data/gguf/quantized.gguf");
  REQUIRE(file.tensors.size() == 5);
  REQUIRE(file.tensors.back().name == "values");
  const std::vector<float> values = floats(file.tensors.back());
  for (const StoredTensor& expected : file.tensors) {
    if (expected.name == "values") continue;
    CAPTURE(expected.name);
    REQUIRE(can_quantize_to(expected.dtype));
    const std::vector<std::byte> found = quantized(expected.dtype, values);
    REQUIRE(found.size() == expected.bytes);
    size_t wrong = 0;
    for (size_t i = 0; i < found.size(); ++i)
      if (found[i] != expected.data[i] && ++wrong <= 5) MESSAGE("byte ", i, " differs");
    CHECK(wrong == 0);
  }
}

TEST_CASE("quantize: Q8_0 is within half a step, and what it makes stays what it is") {
  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), -20.0f);
  StoredTensor stored;
  std::vector<std::byte> bytes = quantized(DType::Q8_0, values);
  stored.dtype = DType::Q8_0, stored.shape = {64}, stored.data = bytes.data(), stored.bytes = bytes.size();
  const std::vector<float> found = floats(stored);
  for (size_t i = 0; i < values.size(); ++i) CHECK(std::abs(found[i] - values[i]) <= 0.51f * 43 / 127);
  for (const DType exact : {DType::F32, DType::F16, DType::BF16}) {
    CAPTURE(traits(exact).name);
    std::vector<std::byte> narrow = quantized(exact, values);  // small integers fit
    stored.dtype = exact, stored.data = narrow.data(), stored.bytes = narrow.size();
    CHECK(floats(stored) == values);
  }
  CHECK(quantized(DType::Q8_0, {}).empty());
}

TEST_CASE("quantize: a NaN stays one, and one block") {
  std::vector<float> values(64, 1.0f);
  values[40] = std::numeric_limits<float>::quiet_NaN();
  StoredTensor stored;
  for (const DType dtype : {DType::Q8_0, DType::F16, DType::BF16}) {
    CAPTURE(traits(dtype).name);
    std::vector<std::byte> bytes = quantized(dtype, values);
    stored.dtype = dtype, stored.shape = {64}, stored.data = bytes.data(), stored.bytes = bytes.size();
    const std::vector<float> found = floats(stored);
    CHECK(found[40] != found[40]);
    CHECK(found[0] == doctest::Approx(1).epsilon(1e-3));
  }
}

TEST_CASE("float_to_half and float_to_bfloat16 are the ways back of every half and bfloat16") {
  size_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    const bool half_nan = (value & 0x7FFF) > 0x7C00, bfloat_nan = (value & 0x7FFF) > 0x7F80;
    if (!half_nan) wrong += float_to_half(half_to_float(value)) != value;
    if (half_nan) wrong += (float_to_half(half_to_float(value)) & 0x7C00) != 0x7C00;
    if (!bfloat_nan) wrong += float_to_bfloat16(bfloat16_to_float(value)) != value;
  }
  CHECK(wrong == 0);
  CHECK(float_to_half(65519.0f) == 0x7BFF);
  CHECK(float_to_half(65520.0f) == 0x7C00);
  CHECK(float_to_half(-1e30f) == 0xFC00);
  CHECK(float_to_half(std::bit_cast<float>(0x33000000u)) == 0);  // half the smallest half: to even
  CHECK(float_to_half(std::bit_cast<float>(0x33000001u)) == 1);
}

TEST_CASE("quantize refuses what it does not make") {
  float value = 1;
  std::byte out[64];
  CHECK_THROWS_AS(quantize(DType::Q4_0, &value, 32, out), InternalError);
  CHECK_THROWS_AS(quantize(DType::Q8_0, &value, 33, out), InternalError);
}
