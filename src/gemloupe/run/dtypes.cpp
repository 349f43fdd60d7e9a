#include <ATen/ATen.h>

#include "gemloupe/base/errors.h"
#include "gemloupe/run/weights.h"

namespace gemloupe {
inline namespace v0 {

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return at::kDouble;
    case DType::F32:
      return at::kFloat;
    case DType::F16:
      return at::kHalf;
    case DType::BF16:
      return at::kBFloat16;
    case DType::I64:
      return at::kLong;
    case DType::I32:
      return at::kInt;
    case DType::I16:
      return at::kShort;
    case DType::I8:
      return at::kChar;
    case DType::U8:
      return at::kByte;
    case DType::Bool:
      return at::kBool;
    default:
      return at::kFloat;  // block-quantised types dequantise to float32
  }
}

at::ScalarType parse_dtype(const std::string& name) {
  std::string bare = name.starts_with("torch.") ? name.substr(6) : name;
  if (bare == "float32" || bare == "float") return at::kFloat;
  if (bare == "bfloat16") return at::kBFloat16;
  if (bare == "float16" || bare == "half") return at::kHalf;
  if (bare == "float64" || bare == "double") return at::kDouble;
  throw BadOption("dtype '" + name + "' is none of 'float32', 'bfloat16', 'float16' and 'float64'.");
}

std::string dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kDouble:
      return "float64";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kShort:
      return "int16";
    case at::kChar:
      return "int8";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      return at::toString(dtype);
  }
}

at::ScalarType own_dtype(const Checkpoint& checkpoint) {
  // The widest matrices say it: norms of a GGUF are float32 beside quantised matrices.
  const StoredTensor* largest = nullptr;
  for (const StoredTensor& tensor : checkpoint.tensors())
    if (!largest || tensor.bytes > largest->bytes) largest = &tensor;
  if (!largest) throw BadCheckpoint(checkpoint.path().string() + ": it holds no tensors.");
  return scalar_type(largest->dtype);
}

}  // namespace v0
}  // namespace gemloupe
