namespace {

bool runs_here() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma");
}

}  // namespace

#define GEMLOUPE_TABLE kAvx512
#define GEMLOUPE_ISA_NAME "avx512"
#define GEMLOUPE_RUNS_HERE runs_here
#include "gemloupe/ops/kernels/isa/bodies.inl"
