// Attention, the inner loops: one arithmetic, whatever is read of it.
#pragma once

#include "gemloupe/ops/kernels/bfloat16_bits.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {

/// The keys [first, end) that a query may go to, the mask's row where some between them are closed. A query that may go
/// nowhere has first == end, and attends uniformly.
struct Reach {
  int64_t first, end;
  const bool* open;
};

/// One batch row and one key/value head, with the `group` query heads that it serves. A row is a query of one of these
/// heads: number query · group + head. Strides count elements; the last axis is dense.
template <class T>
struct Attention {
  const T *queries, *keys, *values;
  int64_t query_stride, query_head_stride, key_stride, value_stride;
  int64_t tokens, keys_count, group, key_dim, value_dim;
  float scale, cap;      ///< cap 0: none
  const Reach* reaches;  ///< by query
  T *scores, *pattern;  ///< [group, tokens, keys_count], written where they are asked for, or read where a stage starts
  T* out;               ///< [tokens, heads, value_dim]
  int64_t out_stride;   ///< from one token to the next
};

/// Which stages run, in order: scores, softmax, mixing. The first takes what it starts from in memory (queries and
/// keys, scores, pattern); what the last makes goes there, and so does what `scores` and `pattern` point to.
struct Stages {
  bool scores, softmax, mix;
};

struct AttentionLoops {
  /// Rows [begin, end). `scratch` holds (end - begin) · (padded(keys) + key_dim) floats.
  void (*bf16)(const Attention<Bfloat16>&, Stages, int64_t begin, int64_t end, float* scratch);
  void (*f32)(const Attention<float>&, Stages, int64_t begin, int64_t end, float* scratch);
  int64_t tile;  ///< rows that are computed together
  int64_t wide;  ///< keys are padded to a multiple of this
};

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
