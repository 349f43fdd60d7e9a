#include "gemloupe/run/generate.h"

#include <ATen/ATen.h>

#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {
namespace {

at::Tensor last_logits(Trace& trace) {
  RowId row = trace.plan().logits;
  if (trace.rows_are_lazy(row)) return trace.apply_head(row, trace.head_input(row).slice(1, -1)).select(1, -1);
  return trace.read(row).select(1, -1);
}

/// Rows that are done go on with padding; true when all are.
bool mark_done(std::vector<int64_t>& tokens, std::vector<char>& done, const GenerateOptions& options) {
  bool all = true;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (done[i]) tokens[i] = options.pad;
    if (options.end_tokens.contains(tokens[i])) done[i] = true;
    all = all && done[i];
  }
  return all;
}

}  // namespace

at::Tensor generate(const std::shared_ptr<const Plan>& plan, const std::shared_ptr<const Weights>& weights,
                    const PassInputs& prompt, bool eager, const GenerateOptions& options) {
  if (options.max_new_tokens < 0)
    throw BadOption("max_new_tokens must be 0 or more, but it is " + std::to_string(options.max_new_tokens) + ".");
  KvCache cache(plan->caches);
  PassInputs pass = prompt;
  at::Tensor all = prompt.ids;
  std::vector<char> done(static_cast<size_t>(all.size(0)), false);
  at::Tensor position = prompt.positions.select(1, -1).unsqueeze(1);
  for (int64_t made = 0; made < options.max_new_tokens; ++made) {
    Trace trace(plan, weights, pass, eager, &cache);
    at::Tensor logits = last_logits(trace);
    // Widening loses nothing, and bfloat16's own argmax takes three times as long.
    if (logits.element_size() < 4) logits = logits.to(at::kFloat);
    at::Tensor next = logits.argmax(-1).to(at::kCPU, at::kLong).contiguous();
    trace.finish();
    std::vector<int64_t> tokens(next.const_data_ptr<int64_t>(), next.const_data_ptr<int64_t>() + next.numel());
    bool finished = mark_done(tokens, done, options);
    pass.ids = at::tensor(tokens, at::kLong).unsqueeze(1).to(all.device());
    all = at::cat({all, pass.ids}, 1);
    if (options.on_step && !options.on_step(tokens)) break;
    if (finished) break;
    position = position + 1;
    pass.positions = position;
    pass.mask = at::cat({pass.mask, at::ones_like(pass.ids)}, 1);
  }
  return all;
}

}  // namespace v0
}  // namespace gemloupe
