// The inner loops, compiled for the instructions of the file that includes this, which names the table GEMLOUPE_TABLE.
#include "gemloupe/ops/kernels/attention.inl"
#include "gemloupe/ops/kernels/elementwise.inl"
#include "gemloupe/ops/kernels/isa/isa.h"
#include "gemloupe/ops/kernels/linear.inl"
#include "gemloupe/ops/kernels/quantised.inl"
#include "gemloupe/ops/kernels/table.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

const Table GEMLOUPE_TABLE = {GEMLOUPE_ISA_NAME, GEMLOUPE_RUNS_HERE, kLinearLoops,
                              kElementwiseLoops, kAttentionLoops,    kQuantisedLoops};

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
