// The standard values: the only place where their names, layouts and meanings are written. Families say where each lies
// in their forward pass, or why a checkpoint has none.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "gemloupe/base/axes.h"

namespace gemloupe {
inline namespace v0 {

/// The module whose attribute a value is: `model.logits`, `model.layers[i].layer_mid`,
/// `model.layers[i].mlp.mlp_output`.
enum class Host : uint8_t { Model, Layer, Attention, Mlp };

struct ValueSpec {
  std::string_view name;
  Host host;
  std::string_view layout;  ///< "Residual", "Queries": the kind of tensor, as the pages name it
  std::vector<Axis> axes;   ///< empty for a scalar
  std::string_view meaning;
  bool integer = false;       ///< token ids, masks, expert indices: not in the model's dtype
  bool read_only = false;     ///< derived from other values
  std::string_view only_of = {};  ///< where it exists, of a value that most families have nowhere
};

namespace values {
extern const ValueSpec logits, token_embeddings, final_norm_output, lm_head_output, next_token_probs, input_ids,
    attention_mask, input_size;
extern const ValueSpec layer_input, attention_norm_output, layer_mid, mlp_norm_output, mlp_input, layer_output,
    per_layer_output;
extern const ValueSpec attention_queries, attention_keys, attention_values, attention_scores, attention_premix,
    attention_output, attention_probabilities, attention_head_outputs;
extern const ValueSpec mlp_activation, mlp_neurons, mlp_output;
extern const ValueSpec router_logits, expert_weights, expert_indices, expert_outputs, routed_output,
    shared_expert_output;
}  // namespace values

/// Every standard value, by host, in the order in which support() prints them.
std::span<const ValueSpec* const> catalogue();

}  // namespace v0
}  // namespace gemloupe
