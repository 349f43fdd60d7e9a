namespace {

bool runs_here() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

}  // namespace

#define GEMLOUPE_TABLE kAvx2
#define GEMLOUPE_ISA_NAME "avx2"
#define GEMLOUPE_RUNS_HERE runs_here
#include "gemloupe/ops/kernels/isa/bodies.inl"
