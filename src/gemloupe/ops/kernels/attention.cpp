#include "gemloupe/ops/kernels/attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "gemloupe/ops/kernels/table.h"
#include "gemloupe/ops/kernels/walk.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

constexpr int64_t kScratch = int64_t{96} << 10;  // floats: what stays in the second level of the cache

/// The tensors of one call; those that a stage does not have are undefined.
struct Run {
  explicit Run(Stages of_call) : stages(of_call) {}

  at::Tensor queries, keys, values, open, scores, pattern, out;
  Stages stages;
  double scale = 1;
  std::optional<double> softcap;

  int64_t batch = 0, heads = 0, kv_heads = 0, tokens = 0, keys_count = 0;
  std::vector<Reach> reaches;  ///< by batch row and query

  void find_reaches() {
    reaches.resize(static_cast<size_t>(batch * tokens), {0, 0, nullptr});
    if (!stages.scores) return;
    for (int64_t row = 0; row < batch * tokens; ++row) {
      Reach& reach = reaches[static_cast<size_t>(row)];
      if (!open.defined()) {
        reach.end = keys_count - tokens + row % tokens + 1;
        continue;
      }
      const bool* mask = open.const_data_ptr<bool>() + row * keys_count;
      const bool *end = mask + keys_count, *first = std::find(mask, end, true);
      if (first == end) continue;
      const bool* last = end;
      while (!last[-1]) --last;
      reach = {first - mask, last - mask, std::find(first, last, false) == last ? nullptr : mask};
    }
  }

  template <class T>
  Attention<T> part(int64_t row, int64_t kv_head) const {
    const int64_t group = heads / kv_heads;
    auto at = [&](const at::Tensor& x, int64_t head) {
      return x.defined() ? static_cast<T*>(x.data_ptr()) + row * x.stride(0) + head * x.stride(1) : nullptr;
    };
    Attention<T> a{};
    a.tokens = tokens, a.keys_count = keys_count, a.group = group;
    a.scale = static_cast<float>(scale), a.cap = static_cast<float>(softcap.value_or(0));
    a.reaches = reaches.data() + row * tokens;
    a.scores = at(scores, kv_head * group), a.pattern = at(pattern, kv_head * group);
    if (stages.scores) {
      a.queries = at(queries, kv_head * group), a.keys = at(keys, kv_head);
      a.query_stride = queries.stride(2), a.query_head_stride = queries.stride(1), a.key_stride = keys.stride(2);
      a.key_dim = queries.size(3);
    }
    if (stages.mix) {
      a.values = at(values, kv_head), a.value_stride = values.stride(2), a.value_dim = values.size(3);
      a.out = static_cast<T*>(out.data_ptr()) + row * out.stride(0) + kv_head * group * out.stride(2);
      a.out_stride = out.stride(1);
    }
    return a;
  }

  /// Few enough to stay in the cache, and to give each thread some where there are few; the same whatever the stages.
  int64_t rows_of_block(int64_t tile) const {
    const int64_t rows = tokens * (heads / kv_heads), all = batch * kv_heads * rows;
    const int64_t cached = std::max<int64_t>(1, kScratch / keys_count / tile) * tile;
    return std::max<int64_t>(1, std::min({rows, cached, (all + 1) / 2}));
  }

  template <class T, class Loop>
  void over_blocks(Loop loop, const AttentionLoops& loops) const {
    const int64_t rows = tokens * (heads / kv_heads), block = rows_of_block(loops.tile);
    const int64_t blocks = (rows + block - 1) / block, dim = stages.scores ? queries.size(3) : 0;
    const int64_t padded = (keys_count + loops.wide - 1) / loops.wide * loops.wide;
    const int64_t work = block * keys_count * (dim + (stages.mix ? values.size(3) : 8));
    at::parallel_for(0, batch * kv_heads * blocks, grain(work), [&](int64_t begin, int64_t end) {
      // Not at::empty: of a thread's own, and not cleared.
      const std::unique_ptr<float[]> scratch(new float[static_cast<size_t>(block * (padded + dim))]);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t pair = i / blocks, n = i % blocks;
        // Causal blocks grow: the first and the last, the second and the last but one, … are as much
        // work as any.
        const int64_t first = (n % 2 ? blocks - 1 - n / 2 : n / 2) * block;
        loop(part<T>(pair / kv_heads, pair % kv_heads), stages, first, std::min(rows, first + block), scratch.get());
      }
    });
  }

  void run() {
    find_reaches();
    const AttentionLoops& loops = table().attention;
    const at::Tensor& any = stages.scores ? queries : stages.softmax ? scores : pattern;
    if (any.scalar_type() == at::kBFloat16)
      over_blocks<Bfloat16>(loops.bf16, loops);
    else
      over_blocks<float>(loops.f32, loops);
  }
};

/// [batch, 1, queries, keys] booleans, dense, of which nothing but plain causality may be missing.
bool take_mask(Run& run, const at::Tensor& open) {
  if (!open.defined()) return run.keys_count >= run.tokens;
  if (open.scalar_type() != at::kBool || !open.device().is_cpu() || !open.has_storage() || open.dim() != 4)
    return false;
  if (open.size(1) != 1 || open.size(2) != run.tokens || open.size(3) != run.keys_count) return false;
  if (open.size(0) != run.batch && open.size(0) != 1) return false;
  run.open = open.expand({run.batch, 1, run.tokens, run.keys_count}).contiguous();
  return true;
}

bool takes(const at::Tensor& x, at::ScalarType dtype) {
  return fits(x) && x.dim() == 4 && x.scalar_type() == dtype && x.numel() > 0;
}

bool take_queries(Run& run, const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& open, double scale,
                  std::optional<double> softcap) {
  if (!takes(queries, queries.scalar_type()) || !takes(keys, queries.scalar_type())) return false;
  run.batch = queries.size(0), run.heads = queries.size(1), run.kv_heads = keys.size(1);
  run.tokens = queries.size(2), run.keys_count = keys.size(2);
  if (keys.size(0) != run.batch || run.heads % run.kv_heads || keys.size(3) != queries.size(3)) return false;
  run.queries = with_dense_rows(queries), run.keys = with_dense_rows(keys);
  run.scale = scale, run.softcap = softcap;
  return take_mask(run, open);
}

bool take_values(Run& run, const at::Tensor& values, at::ScalarType dtype) {
  if (!takes(values, dtype) || values.size(0) != run.batch || values.size(2) != run.keys_count) return false;
  run.kv_heads = values.size(1);
  if (run.heads % run.kv_heads) return false;
  run.values = with_dense_rows(values);
  run.out = at::empty({run.batch, run.tokens, run.heads, values.size(3)}, values.options());
  return true;
}

bool take_rows(Run& run, const at::Tensor& rows) {
  if (!takes(rows, rows.scalar_type())) return false;
  run.batch = rows.size(0), run.heads = run.kv_heads = rows.size(1);
  run.tokens = rows.size(2), run.keys_count = rows.size(3);
  return true;
}

}  // namespace

at::Tensor attention_scores(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& open, double scale,
                            std::optional<double> softcap) {
  Run run(Stages{true, false, false});
  if (!take_queries(run, queries, keys, open, scale, softcap)) return {};
  run.scores = at::empty({run.batch, run.heads, run.tokens, run.keys_count}, queries.options());
  run.run();
  return run.scores;
}

at::Tensor attention_pattern(const at::Tensor& scores) {
  Run run(Stages{false, true, false});
  if (!take_rows(run, scores)) return {};
  run.scores = scores.contiguous();
  run.pattern = at::empty_like(run.scores);
  run.run();
  return run.pattern;
}

at::Tensor mix_values(const at::Tensor& pattern, const at::Tensor& values) {
  Run run(Stages{false, false, true});
  if (!take_rows(run, pattern) || !take_values(run, values, pattern.scalar_type())) return {};
  run.pattern = pattern.contiguous();
  run.run();
  return run.out;
}

at::Tensor attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                     const at::Tensor& open, double scale, std::optional<double> softcap) {
  Run run(Stages{true, true, true});
  if (!take_queries(run, queries, keys, open, scale, softcap)) return {};
  const int64_t kv_heads = run.kv_heads;
  if (!take_values(run, values, queries.scalar_type()) || run.kv_heads != kv_heads) return {};
  run.run();
  return run.out;
}

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
