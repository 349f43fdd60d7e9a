#include <doctest/doctest.h>

#include <set>
#include <string>

#include "gemloupe/base/dtype.h"

using namespace gemloupe;

namespace {
constexpr int kCount = static_cast<int>(DType::Q6_K) + 1;
}

TEST_CASE("dtypes: each is found by its own names and by no other's") {
  std::set<std::string_view> names;
  for (int i = 0; i < kCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const DTypeTraits& t = traits(dtype);
    CAPTURE(t.name);
    CHECK(names.insert(t.name).second);
    CHECK(dtype_from_name(t.name) == dtype);
    if (!t.safetensors.empty()) CHECK(dtype_from_safetensors(t.safetensors) == dtype);
    CHECK(is_quantised(dtype) == t.safetensors.empty());
    CHECK((t.block_size == 1 || t.block_size == 32 || t.block_size == 256));
    CHECK(t.block_bytes > 0);
  }
  for (const char* unknown : {"", "bf16", "Float32", "F8_E4M3", "torch.float32"}) {
    CHECK(!dtype_from_name(unknown));
    CHECK(!dtype_from_safetensors(unknown));
  }
}

TEST_CASE("dtypes: what counts as a floating-point number") {
  std::set<std::string> floating;
  for (int i = 0; i < kCount; ++i)
    if (is_floating(static_cast<DType>(i))) floating.emplace(traits(static_cast<DType>(i)).name);
  CHECK(floating == std::set<std::string>{"bfloat16", "float16", "float32", "float64"});
}

TEST_CASE("dtypes: sizes") {
  CHECK(traits(DType::F64).block_bytes == 8);
  CHECK(traits(DType::BF16).block_bytes == 2);
  CHECK(traits(DType::Bool).block_bytes == 1);
  CHECK(traits(DType::Q8_0).block_bytes == 2 + 32);             // a half and 32 bytes
  CHECK(traits(DType::Q4_0).block_bytes == 2 + 16);             // a half and 32 nibbles
  CHECK(traits(DType::Q4_K).block_bytes == 2 + 2 + 12 + 128);   // two halves, 6-bit scales, 256 nibbles
  CHECK(traits(DType::Q6_K).block_bytes == 128 + 64 + 16 + 2);  // low and high bits, scales, a half
}
