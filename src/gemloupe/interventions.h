// What researchers do with a model, ready made: activations, lenses, steering, ablation, patching, attribution. What
// gemloupe.interventions is in Python; results are on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gemloupe/model.h"

namespace gemloupe {
inline namespace v0 {
namespace interventions {

/// The logits at each prompt's last token [prompts, vocab_size], float32, to one number, a tensor of one element.
using Metric = std::function<at::Tensor(const at::Tensor&)>;

/// Which blocks and columns a sweep takes, all where a list is empty, and how many rows a run has at most. Negative
/// numbers count from the end.
struct Sweep {
  std::vector<int64_t> layers = {}, positions = {};
  int64_t batch_size = 32;
};

/// The stream leaving some blocks at token `index` of each prompt, counted without padding: [layers, prompts,
/// hidden_size]. Errors: BadOption for a block or a token that is not there.
at::Tensor token_activations(const Model& model, const Prompt& prompt, const std::vector<int64_t>& layers = {},
                             int64_t index = -1);

/// What the last token's stream says after each block, through the model's own norm, head and cap: probabilities
/// [prompts, layers, vocab_size], float32.
at::Tensor logit_lens(const Model& model, const Prompt& prompt);

/// What the model says after `target` in which token `index` has the stream of `source`'s last token, at each of
/// `layers` in turn: probabilities [prompts, layers, vocab_size], float32. As many targets as sources.
at::Tensor patchscope_lens(const Model& model, const Prompt& source, const Prompt& target, int64_t index = -1,
                           const std::vector<int64_t>& layers = {});

/// Adds factor · vector [hidden_size] to the stream that leaves a block, at one column or at all.
void steer(Trace& trace, int64_t layer, const at::Tensor& vector, double factor = 1,
           std::optional<int64_t> position = std::nullopt);

/// A metric with each head ablated, NaN where a block has fewer heads: [layers, heads], float64.
struct HeadAblation {
  double clean = 0;
  at::Tensor ablated;
  at::Tensor effect() const;
};
HeadAblation head_ablation(const Model& model, const Prompt& prompt, const Metric& metric, const Sweep& sweep = {});

/// The metric of a corrupted run with one clean value patched in: [layers, positions], float64.
struct Patching {
  double clean = 0, corrupted = 0;
  at::Tensor patched;
  /// 0 where a patch does nothing, 1 where it brings the clean run's metric back.
  at::Tensor recovered() const;
};
/// `value` is one of a block's with a seq axis, "layer_output", "self_attn.attention_output", "mlp.mlp_output". Errors:
/// BadPrompt for prompts of unlike lengths, BadOption.
Patching activation_patching(const Model& model, const Prompt& clean, const Prompt& corrupted, const Metric& metric,
                             const std::string& value = "layer_output", const Sweep& sweep = {});
/// The same to first order, by the gradient in the corrupted run: two runs in all.
Patching attribution_patching(const Model& model, const Prompt& clean, const Prompt& corrupted, const Metric& metric,
                              const std::string& value = "layer_output", const Sweep& sweep = {});

/// What each component of token_embeddings adds to the metric along the straight path from `baseline` to the prompt's
/// own: [prompts, seq, hidden_size], float64. They sum to the difference of the metrics at the ends.
at::Tensor integrated_gradients(const Model& model, const Prompt& prompt, const Metric& metric,
                                const at::Tensor& baseline, int64_t steps = 32);

/// The terms of some tokens' logits at each prompt's last token, float64; each norm's scale is what it was in this run.
struct LogitAttribution {
  at::Tensor embedding;       ///< [prompts, tokens]
  at::Tensor heads;           ///< [prompts, layers, heads, tokens]; zero where a block has fewer
  at::Tensor attention_bias;  ///< [prompts, layers, tokens]
  at::Tensor mlps;            ///< [prompts, layers, tokens]
  at::Tensor per_layer;       ///< [prompts, layers, tokens], of Gemma 4's per-layer embeddings
  /// [prompts, tokens]: `lm_head_output` there.
  at::Tensor total() const;
};
LogitAttribution direct_logit_attribution(const Model& model, const Prompt& prompt, const std::vector<int64_t>& tokens,
                                          int64_t index = -1);

}  // namespace interventions
}  // namespace v0
}  // namespace gemloupe
