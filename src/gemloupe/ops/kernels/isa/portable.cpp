namespace {

bool runs_here() {
  return true;
}

}  // namespace

#define GEMLOUPE_TABLE kPortable
#define GEMLOUPE_ISA_NAME "portable"
#define GEMLOUPE_RUNS_HERE runs_here
#include "gemloupe/ops/kernels/isa/bodies.inl"
