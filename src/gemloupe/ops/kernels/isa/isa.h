#pragma once

#include "gemloupe/ops/kernels/table.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

extern const Table kPortable, kAvx2, kAvx512, kAvx512Bf16;

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
