#pragma once

#include <cstdint>

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

/// Laid out as at::BFloat16, which the files of isa/ may not include.
struct Bfloat16 {
  uint16_t bits;
};

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
