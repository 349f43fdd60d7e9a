// The inner loops of all kernels, once for each set of instructions; which one runs is decided when the program does.
#pragma once

#include <vector>

#include "gemloupe/ops/kernels/attention_loops.h"
#include "gemloupe/ops/kernels/elementwise_loops.h"
#include "gemloupe/ops/kernels/linear_loops.h"
#include "gemloupe/ops/kernels/quantised_loops.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

struct Table {
  const char* name;
  bool (*runs_here)();
  LinearLoops linear;
  ElementwiseLoops elementwise;
  AttentionLoops attention;
  QuantisedLoops quantised;
};

/// The best that this machine has; GEMLOUPE_ISA (portable, avx2, avx512, avx512_bf16) in its place. Errors: BadOption
/// for one that is not there.
const Table& table();

/// For tests: the tables that run on this machine, best first, and the one that `table()` gives from here on.
std::vector<const Table*> tables();
void use(const Table& table);

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
