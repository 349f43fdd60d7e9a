#include "gemloupe/base/dtype.h"

#include <array>

namespace gemloupe {
inline namespace v0 {
namespace {
// In the enum's order. Block layouts: ggml's ggml-common.h.
constexpr std::array<DTypeTraits, 20> kTraits{{
    {"float64", "F64", 1, 8}, {"float32", "F32", 1, 4}, {"float16", "F16", 1, 2}, {"bfloat16", "BF16", 1, 2},
    {"int64", "I64", 1, 8},   {"int32", "I32", 1, 4},   {"int16", "I16", 1, 2},   {"int8", "I8", 1, 1},
    {"uint8", "U8", 1, 1},    {"bool", "BOOL", 1, 1},   {"Q4_0", "", 32, 18},     {"Q4_1", "", 32, 20},
    {"Q5_0", "", 32, 22},     {"Q5_1", "", 32, 24},     {"Q8_0", "", 32, 34},     {"Q2_K", "", 256, 84},
    {"Q3_K", "", 256, 110},   {"Q4_K", "", 256, 144},   {"Q5_K", "", 256, 176},   {"Q6_K", "", 256, 210},
}};
}  // namespace

const DTypeTraits& traits(DType dtype) {
  return kTraits[static_cast<size_t>(dtype)];
}
bool is_quantised(DType dtype) {
  return traits(dtype).block_size > 1;
}
bool is_floating(DType dtype) {
  return dtype <= DType::BF16;
}

std::optional<DType> dtype_from_safetensors(std::string_view spelling) {
  for (size_t i = 0; i < kTraits.size(); ++i)
    if (!spelling.empty() && kTraits[i].safetensors == spelling) return static_cast<DType>(i);
  return std::nullopt;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kTraits.size(); ++i)
    if (kTraits[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace v0
}  // namespace gemloupe
