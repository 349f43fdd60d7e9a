#include "gemloupe/plan/catalogue.h"

namespace gemloupe {
inline namespace v0 {
namespace values {
using enum Axis;
using enum Host;

namespace {
constexpr std::string_view kPerLayerEmbeddings = "per-layer embeddings (Gemma 4 E2B and E4B)";
constexpr std::string_view kMixture = "a mixture of experts (Gemma 4 26B-A4B)";
}  // namespace

const ValueSpec logits{"logits",
                       Model,
                       "Logits",
                       {batch, seq, vocab_size},
                       "The logits the model returns, after anything it does past lm_head (a softcap, a scale)"};
const ValueSpec token_embeddings{"token_embeddings",
                                 Model,
                                 "Residual",
                                 {batch, seq, hidden_size},
                                 "The embedding module's output; layers[0].input is what enters the first block"};
const ValueSpec final_norm_output{"final_norm_output",
                                  Model,
                                  "Residual",
                                  {batch, seq, hidden_size},
                                  "The residual stream after the final norm, what lm_head reads"};
const ValueSpec lm_head_output{"lm_head_output",
                               Model,
                               "Logits",
                               {batch, seq, vocab_size},
                               "The head's logits before anything the model does past lm_head (a softcap, a scale)"};
const ValueSpec next_token_probs{"next_token_probs",
                                 Model,
                                 "NextTokenProbs",
                                 {batch, vocab_size},
                                 "The next-token distribution at the last position; derived, read-only",
                                 false,
                                 true};
const ValueSpec input_ids{"input_ids", Model, "Tokens", {batch, seq}, "The token ids the model was called with", true};
const ValueSpec attention_mask{"attention_mask",
                               Model,
                               "Tokens",
                               {batch, seq},
                               "The attention mask the model was called with; zeros are padding",
                               true};
const ValueSpec input_size{"input_size", Model, "scalar", {}, "[batch, seq] of the current call; read-only",
                           true,         true};

const ValueSpec layer_input{
    "layer_input", Layer, "Residual", {batch, seq, hidden_size}, "The residual stream entering the block"};
const ValueSpec attention_norm_output{
    "attention_norm_output", Layer, "Residual", {batch, seq, hidden_size}, "The normed stream entering the attention"};
const ValueSpec layer_mid{
    "layer_mid", Layer, "Residual", {batch, seq, hidden_size}, "The residual stream after the attention add"};
const ValueSpec mlp_norm_output{
    "mlp_norm_output", Layer, "Residual", {batch, seq, hidden_size}, "The normed stream entering the MLP"};
const ValueSpec mlp_input{"mlp_input", Layer, "Residual", {batch, seq, hidden_size}, "What the MLP is called with"};
const ValueSpec layer_output{"layer_output",
                             Layer,
                             "Residual",
                             {batch, seq, hidden_size},
                             "The residual stream leaving the block, a tensor even when the block returns a tuple"};
const ValueSpec per_layer_output{"per_layer_output",
                                 Layer,
                                 "Residual",
                                 {batch, seq, hidden_size},
                                 "What the per-layer-embedding branch adds to the residual stream: the "
                                 "post-per-layer-input norm's output",
                                 false,
                                 false,
                                 kPerLayerEmbeddings};

const ValueSpec attention_queries{
    "attention_queries", Attention, "Queries", {batch, num_heads, seq, qk_head_dim}, "The queries entering attention"};
const ValueSpec attention_keys{
    "attention_keys", Attention, "Keys", {batch, num_kv_heads, seq, qk_head_dim}, "The keys entering attention"};
const ValueSpec attention_values{
    "attention_values", Attention, "Values", {batch, num_kv_heads, seq, head_dim}, "The values entering attention"};
const ValueSpec attention_scores{"attention_scores",
                                 Attention,
                                 "Pattern",
                                 {batch, num_heads, query, key},
                                 "The attention scores entering the softmax, masked"};
const ValueSpec attention_premix{"attention_premix",
                                 Attention,
                                 "HeadOutputs",
                                 {batch, seq, num_heads, head_dim},
                                 "Every head's output side by side, as the output projection takes it"};
const ValueSpec attention_output{"attention_output",
                                 Attention,
                                 "Residual",
                                 {batch, seq, hidden_size},
                                 "What the attention adds to the residual stream"};
const ValueSpec attention_probabilities{"attention_probabilities",
                                        Attention,
                                        "Pattern",
                                        {batch, num_heads, query, key},
                                        "The attention pattern the values are mixed with"};
const ValueSpec attention_head_outputs{"attention_head_outputs",
                                       Attention,
                                       "HeadOutputs",
                                       {batch, seq, num_heads, head_dim},
                                       "The per-head outputs before the output projection"};

const ValueSpec mlp_activation{
    "mlp_activation", Mlp, "Neurons", {batch, seq, intermediate_size}, "The activation function's output"};
const ValueSpec mlp_neurons{
    "mlp_neurons",
    Mlp,
    "Neurons",
    {batch, seq, intermediate_size},
    "What the down projection receives: act(gate)·up on a gated MLP, the activation itself otherwise"};
const ValueSpec mlp_output{
    "mlp_output", Mlp, "Residual", {batch, seq, hidden_size}, "What the MLP adds to the residual stream"};
const ValueSpec router_logits{"router_logits",
                              Mlp,
                              "RouterLogits",
                              {batch, seq, num_experts},
                              "The router's logits, one per expert, before the scoring",
                              false,
                              false,
                              kMixture};
const ValueSpec expert_weights{"expert_weights",
                               Mlp,
                               "ExpertWeights",
                               {batch, seq, top_k},
                               "The weight each selected expert's output is scaled by",
                               false,
                               false,
                               kMixture};
const ValueSpec expert_indices{"expert_indices",
                               Mlp,
                               "ExpertIndices",
                               {batch, seq, top_k},
                               "The expert each routing slot sends the token to",
                               true,
                               false,
                               kMixture};
const ValueSpec expert_outputs{"expert_outputs",
                               Mlp,
                               "ExpertOutputs",
                               {batch, seq, top_k, hidden_size},
                               "Each routing slot's weighted expert output",
                               false,
                               false,
                               kMixture};
const ValueSpec routed_output{"routed_output",
                              Mlp,
                              "Residual",
                              {batch, seq, hidden_size},
                              "The routed experts' combined output",
                              false,
                              false,
                              kMixture};
const ValueSpec shared_expert_output{"shared_expert_output",
                                     Mlp,
                                     "Residual",
                                     {batch, seq, hidden_size},
                                     "The dense MLP's output, before its post-norm: the shared expert beside the "
                                     "mixture",
                                     false,
                                     false,
                                     kMixture};
}  // namespace values

std::span<const ValueSpec* const> catalogue() {
  using namespace values;
  static const ValueSpec* const all[] = {&logits,
                                         &token_embeddings,
                                         &final_norm_output,
                                         &lm_head_output,
                                         &next_token_probs,
                                         &input_ids,
                                         &attention_mask,
                                         &input_size,
                                         &layer_input,
                                         &attention_norm_output,
                                         &layer_mid,
                                         &mlp_norm_output,
                                         &mlp_input,
                                         &layer_output,
                                         &per_layer_output,
                                         &attention_queries,
                                         &attention_keys,
                                         &attention_values,
                                         &attention_scores,
                                         &attention_premix,
                                         &attention_output,
                                         &attention_probabilities,
                                         &attention_head_outputs,
                                         &mlp_activation,
                                         &mlp_neurons,
                                         &mlp_output,
                                         &router_logits,
                                         &expert_weights,
                                         &expert_indices,
                                         &expert_outputs,
                                         &routed_output,
                                         &shared_expert_output};
  return all;
}

}  // namespace v0
}  // namespace gemloupe
