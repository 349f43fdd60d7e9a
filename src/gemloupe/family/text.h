// Words that the text families share: the same submodules in the same order, with each family's class names.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gemloupe/family/family.h"
#include "gemloupe/plan/builder.h"

namespace gemloupe {
inline namespace v0 {

inline constexpr const char* kSliding = "sliding_attention";
inline constexpr const char* kFull = "full_attention";

// ------------------------------------------------------------------------------------------------------------- config

/// The keys that every text family's config class has, but for those whose names differ.
std::vector<ConfigKey> text_keys(int64_t vocab, int64_t hidden, int64_t inner, int64_t layers, int64_t heads,
                                 int64_t kv_heads, int64_t positions);

/// Sizes that divide, a vocabulary that holds the padding id, an activation that is the tanh GELU. `activation` is its
/// key.
void check_text_config(const Config& config, const std::string& activation, const std::string& where);

/// `layer_types` of the right length, each one of the two kinds.
void check_layer_types(const Config& config, const std::string& where);

/// One rotary table's parameters in the reference's form: rope_type "default", "linear" or, on Gemma 4, "proportional";
/// rope_theta, factor, partial_rotary_factor.
void complete_rope_table(json& table, const json& theta, const std::string& name, const std::string& where,
                         bool may_be_proportional = false);

/// `rope_parameters` of a family with one table, from it or from the keys of released files.
json single_rope_parameters(const json& raw, double theta, const std::string& where);

RotaryFrequencies frequencies_of(const json& table, int64_t head_dim);

// ------------------------------------------------------------------------------------------------------------- recipe

struct TextShape {
  std::string prefix;  ///< of the reference's class names: "Gemma3"
  std::string block;   ///< likewise inside the blocks, where that differs: "Gemma4Text"
  int64_t hidden, heads, kv_heads, head_dim, inner, vocab;
  bool bias;
  PlanBuilder::NormStyle norm;
};

TextShape text_shape(const Config& config, const std::string& prefix);
Sizes sizes_of(const TextShape& shape);

/// What the blocks of one kind share: their mask and their rotary table.
struct BlockKind {
  std::string name;
  MaskRule rule;
  Slot mask = -1, cos = -1, sin = -1;
};

/// The values that a run is called with.
void run_inputs(PlanBuilder& b);

Slot mask_step(PlanBuilder& b, const MaskRule& rule, Slot stream);

/// Full causal attention with the one rotary table of `rope_parameters`; rotary_emb is a module with ports.
BlockKind single_kind(PlanBuilder& b, const TextShape& shape, const std::string& rotary_class, Slot stream);

/// What a block, or the attention in it, is called with: `first`, then by keyword, in the reference's order, those of
/// attention_mask, position_embeddings and position_ids that `keywords` names.
std::vector<ArgumentSpec> called_with(PlanBuilder& b, const BlockKind& kind, ArgumentSpec first,
                                      const std::vector<std::string>& keywords);

/// embed_tokens, its look-up times √hidden. `scope` is the text model, which is called with ids or, inside a multimodal
/// model, with what is looked up here.
Slot scaled_embedding(PlanBuilder& b, const TextShape& shape, PlanBuilder::Scope& scope, const TextPlace& place);

/// Attributes that the reference's attention module has, of each family's.
void attention_attributes(PlanBuilder::Scope& scope, const TextShape& shape, int layer, double scale);

struct Heads {
  Slot queries, keys, values;  ///< flat, as the projections give them
};
Heads project_heads(PlanBuilder& b, const TextShape& shape, int layer, Slot x);

/// Rotates, extends the cache, attends, projects back. `queries` and `keys` are seen heads first.
PartSpec attend(PlanBuilder& b, const TextShape& shape, int layer, const BlockKind& kind, Operand queries, Operand keys,
                Operand values, double scale, std::optional<double> softcap);

/// down_proj(gelu(gate_proj(x)) · up_proj(x)).
Slot gated_mlp(PlanBuilder& b, const TextShape& shape, int layer, Slot x);

/// A block that norms before and after each sublayer: x + post_norm(f(norm(x))), twice. `attention` opens self_attn.
Slot sandwich_block(PlanBuilder& b, const TextShape& shape, int layer, Slot x, const BlockKind& kind,
                    const std::function<Slot(Slot)>& attention);

/// The module list, each block opened by `block`. `sizes` are those of a block, where blocks differ.
Slot stack(PlanBuilder& b, const std::vector<std::string>& kinds, Slot stream,
           const std::function<Slot(int, Slot)>& block, const std::function<Sizes(int)>& sizes = nullptr);

/// Final norm; what the text model returns.
Slot final_norm(PlanBuilder& b, const TextShape& shape, Slot stream);

/// lm_head, the cap if there is one, and what is derived from logits.
/// `text_model` is the path of the module that holds embed_tokens.
void text_head(PlanBuilder& b, Slot stream, const std::string& text_model, std::optional<double> cap);

/// A plan of a text family alone: its text model at the root's `model`, and the head.
Plan text_plan(const Family& family, const Config& config, const RecipeOptions& options);

/// The cap that the load option leaves of the config's.
std::optional<double> chosen_softcap(const Config& config, const RecipeOptions& options);

/// What is true of every family with sandwich blocks.
void sandwich_notes(PlanBuilder& b);

/// Names on disk that language models cut out of a multimodal wrapper keep, and buffers that are no weights.
void text_spellings(PlanBuilder& b);

}  // namespace v0
}  // namespace gemloupe
