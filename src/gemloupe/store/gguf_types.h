// The numbers by which a GGUF file names the types of its metadata and tensors. Only gguf*.cpp includes this.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "gemloupe/base/dtype.h"

namespace gemloupe {
inline namespace v0 {
namespace gguf {

/// Types of metadata values.
enum Type : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64, kTypes };

struct TensorType {
  std::string_view name;
  std::optional<DType> dtype;  ///< none: known, not read here
};

/// By number, ggml.h's `enum ggml_type`.
inline constexpr std::array<TensorType, 42> kTensorTypes{{
    {"F32", DType::F32},   {"F16", DType::F16},   {"Q4_0", DType::Q4_0}, {"Q4_1", DType::Q4_1}, {"Q4_2", {}},
    {"Q4_3", {}},          {"Q5_0", DType::Q5_0}, {"Q5_1", DType::Q5_1}, {"Q8_0", DType::Q8_0}, {"Q8_1", {}},
    {"Q2_K", DType::Q2_K}, {"Q3_K", DType::Q3_K}, {"Q4_K", DType::Q4_K}, {"Q5_K", DType::Q5_K}, {"Q6_K", DType::Q6_K},
    {"Q8_K", {}},          {"IQ2_XXS", {}},       {"IQ2_XS", {}},        {"IQ3_XXS", {}},       {"IQ1_S", {}},
    {"IQ4_NL", {}},        {"IQ3_S", {}},         {"IQ2_S", {}},         {"IQ4_XS", {}},        {"I8", DType::I8},
    {"I16", DType::I16},   {"I32", DType::I32},   {"I64", DType::I64},   {"F64", DType::F64},   {"IQ1_M", {}},
    {"BF16", DType::BF16}, {"Q4_0_4_4", {}},      {"Q4_0_4_8", {}},      {"Q4_0_8_8", {}},      {"TQ1_0", {}},
    {"TQ2_0", {}},         {"IQ4_NL_4_4", {}},    {"IQ4_NL_4_8", {}},    {"IQ4_NL_8_8", {}},    {"MXFP4", {}},
    {"NVFP4", {}},         {"Q1_0", {}},
}};

}  // namespace gguf
}  // namespace v0
}  // namespace gemloupe
