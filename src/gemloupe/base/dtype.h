// Element types as they lie in files. The block types are GGUF's: `block_size` elements share `block_bytes` bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gemloupe {
inline namespace v0 {

enum class DType : uint8_t {
  F64,
  F32,
  F16,
  BF16,
  I64,
  I32,
  I16,
  I8,
  U8,
  Bool,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
};

struct DTypeTraits {
  std::string_view name;         ///< "bfloat16", "Q4_K": how gemloupe spells it
  std::string_view safetensors;  ///< "BF16"; empty where safetensors has no such type
  int block_size;
  int block_bytes;
};

const DTypeTraits& traits(DType dtype);
bool is_quantised(DType dtype);
bool is_floating(DType dtype);  ///< float64, float32, float16, bfloat16

std::optional<DType> dtype_from_safetensors(std::string_view spelling);
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace v0
}  // namespace gemloupe
