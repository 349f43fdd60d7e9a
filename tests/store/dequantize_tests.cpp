#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/dequantize.h"
#include "gemloupe/store/gguf.h"
#include "store/files.h"

using namespace gemloupe;
using namespace store_tests;

namespace {

std::vector<uint32_t> bits(const StoredTensor& tensor, int64_t first, int64_t rows) {
  const size_t length = tensor.shape.empty() ? 1 : static_cast<size_t>(tensor.shape.back());
  std::vector<float> values(static_cast<size_t>(rows) * length);
  dequantize_rows(tensor, first, rows, values.data());
  std::vector<uint32_t> out(values.size());
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size() * sizeof(float));
  return out;
}

const StoredTensor* find(const GgufFile& file, const std::string& name) {
  for (const StoredTensor& tensor : file.tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

}  // namespace

TEST_CASE("dequantize: every bit is the reference's, for every type and special scale") {
  const GgufFile file = read_gguf(tests_folder() / "data/gguf/vectors.gguf");
  int types = 0;
  for (const StoredTensor& tensor : file.tensors) {
    const StoredTensor* expected = find(file, tensor.name + ".expected");
    if (!expected) continue;
    CAPTURE(tensor.name);
    ++types;
    CHECK(traits(tensor.dtype).name == (tensor.name == "F16"    ? "float16"
                                        : tensor.name == "BF16" ? "bfloat16"
                                                                : std::string_view(tensor.name)));
    REQUIRE(tensor.shape == expected->shape);
    const int64_t rows = row_count(tensor);
    const std::vector<uint32_t> found = bits(tensor, 0, rows), right = bits(*expected, 0, rows);
    size_t wrong = 0;
    for (size_t i = 0; i < right.size(); ++i) {
      if (found[i] == right[i]) continue;
      if (++wrong <= 5) MESSAGE("element ", i, ": found ", std::hex, found[i], ", expected ", right[i]);
    }
    CHECK(wrong == 0);
    const size_t length = static_cast<size_t>(tensor.shape.back());
    for (int64_t row = 0; row < rows; ++row)
      CHECK(bits(tensor, row, 1) ==
            std::vector<uint32_t>(right.begin() + row * length, right.begin() + (row + 1) * length));
    CHECK(bits(tensor, rows, 0).empty());
  }
  CHECK(types == 12);
}

TEST_CASE("dequantize: halves are widened exactly") {
  for (uint32_t half = 0; half < 65536; ++half) {
    const int exponent = (half >> 10) & 31, fraction = half & 1023;
    const float value = half_to_float(static_cast<uint16_t>(half));
    const float sign = half & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31 && fraction) {
      CHECK(std::bit_cast<uint32_t>(value) ==
            ((half & 0x8000) << 16 | 0x7F800000 | static_cast<uint32_t>(fraction) << 13));
    } else {
      const float right = exponent == 31  ? std::numeric_limits<float>::infinity()
                          : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                          : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
      CHECK(std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(sign * right));
    }
  }
  CHECK(bfloat16_to_float(0x3FC0) == 1.5f);
}

TEST_CASE("dequantize: misuse is a bug of ours") {
  int64_t number = 3;
  StoredTensor ids;
  ids.dtype = DType::I64;
  ids.shape = {1};
  ids.data = reinterpret_cast<std::byte*>(&number);
  ids.bytes = 8;
  float out = 0;
  CHECK_REFUSED(InternalError, dequantize(ids, &out), "int64");
  CHECK_REFUSED(InternalError, dequantize_rows(ids, 0, 2, &out), "outside the tensor");
  double value = 1.5;
  ids.dtype = DType::F64;
  ids.data = reinterpret_cast<std::byte*>(&value);
  dequantize(ids, &out);
  CHECK(out == 1.5f);
}
