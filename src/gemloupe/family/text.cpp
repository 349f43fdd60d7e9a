#include "gemloupe/family/text.h"

#include <cmath>
#include <map>
#include <tuple>

namespace gemloupe {
inline namespace v0 {
namespace {
std::string gguf_block(int layer) {
  return "blk." + std::to_string(layer) + ".";
}
}  // namespace

TextShape text_shape(const Config& c, const std::string& prefix) {
  return {prefix,
          prefix,
          c.integer("hidden_size"),
          c.integer("num_attention_heads"),
          c.integer("num_key_value_heads"),
          c.integer("head_dim"),
          c.integer("intermediate_size"),
          c.integer("vocab_size"),
          c.flag("attention_bias"),
          {prefix + "RMSNorm", c.number("rms_norm_eps"), Gain::OnePlusWeight}};
}

Sizes sizes_of(const TextShape& s) {
  return {s.hidden, s.heads, s.kv_heads, s.head_dim, s.head_dim, s.inner, s.vocab};
}

void run_inputs(PlanBuilder& b) {
  b.value(values::input_ids, {b.input_ids(), {}});
  b.value(values::attention_mask, {b.attention_mask(), {}});
  b.value(values::input_size, {b.input_ids(), {}});
}

Slot mask_step(PlanBuilder& b, const MaskRule& rule, Slot stream) {
  return b.step(op::Mask{rule}, {{b.attention_mask(), {}}, {b.position_ids(), {}}, {stream, {}}});
}

BlockKind single_kind(PlanBuilder& b, const TextShape& s, const std::string& rotary_class, Slot stream) {
  BlockKind kind;
  kind.name = kFull;
  kind.mask = mask_step(b, kind.rule, stream);
  auto rotary = b.module("rotary_emb", rotary_class);
  rotary.arguments({{"", stream}, {"position_ids", b.position_ids()}});
  RotaryFrequencies frequencies = frequencies_of(b.config().attributes()["rope_parameters"], s.head_dim);
  std::tie(kind.cos, kind.sin) = b.step2(op::Rotary{frequencies}, {{b.position_ids(), {}}, {stream, {}}});
  rotary.returns(PartSpec::tuple({kind.cos, kind.sin}));
  return kind;
}

std::vector<ArgumentSpec> called_with(PlanBuilder& b, const BlockKind& kind, ArgumentSpec first,
                                      const std::vector<std::string>& keywords) {
  const std::map<std::string, PartSpec> parts{{"attention_mask", kind.mask},
                                              {"position_embeddings", PartSpec::tuple({kind.cos, kind.sin})},
                                              {"position_ids", b.position_ids()}};
  std::vector<ArgumentSpec> arguments{std::move(first)};
  for (const std::string& keyword : keywords) arguments.push_back({keyword, parts.at(keyword)});
  return arguments;
}

Slot scaled_embedding(PlanBuilder& b, const TextShape& s, PlanBuilder::Scope& scope, const TextPlace& place) {
  const ArgumentSpec mask{"attention_mask", b.attention_mask()}, positions{"position_ids", b.position_ids()};
  if (!place.inside) scope.arguments({{"input_ids", place.ids}, mask, positions});
  Slot out =
      b.embed("embed_tokens", s.prefix + "TextScaledWordEmbedding", place.ids, s.vocab, s.hidden,
              std::sqrt(static_cast<double>(s.hidden)), b.config().optional_integer("pad_token_id"), "token_embd");
  b.value(values::token_embeddings, {out, {}});
  if (place.inside) scope.arguments({positions, {"inputs_embeds", out}});
  return out;
}

void attention_attributes(PlanBuilder::Scope& scope, const TextShape& s, int layer, double scale) {
  scope.attribute("layer_idx", layer);
  scope.attribute("head_dim", s.head_dim);
  scope.attribute("num_key_value_groups", s.heads / s.kv_heads);
  scope.attribute("scaling", scale);
}

Heads project_heads(PlanBuilder& b, const TextShape& s, int layer, Slot x) {
  const std::string gguf = gguf_block(layer);
  Slot q = b.linear("q_proj", {x, {}}, s.hidden, s.heads * s.head_dim, s.bias, gguf + "attn_q");
  Slot k = b.linear("k_proj", {x, {}}, s.hidden, s.kv_heads * s.head_dim, s.bias, gguf + "attn_k");
  Slot v = b.linear("v_proj", {x, {}}, s.hidden, s.kv_heads * s.head_dim, s.bias, gguf + "attn_v");
  return {q, k, v};
}

PartSpec attend(PlanBuilder& b, const TextShape& s, int layer, const BlockKind& kind, Operand queries, Operand keys,
                Operand values_, double scale, std::optional<double> softcap) {
  Slot q = b.step(op::Rotate{}, {queries, {kind.cos, {}}, {kind.sin, {}}});
  Slot k = b.step(op::Rotate{}, {keys, {kind.cos, {}}, {kind.sin, {}}});
  auto [all_keys, all_values] = b.step2(op::Extend{layer, kind.rule.window}, {{k, {}}, values_});
  Slot mixed = b.attention({q, {}}, all_keys, all_values, kind.mask, scale, softcap, kind.rule);
  Slot pattern = b.plan().steps.back().inputs[0].slot;
  Slot out = b.linear("o_proj", {mixed, {View::Kind::Flat, s.head_dim}}, s.heads * s.head_dim, s.hidden, s.bias,
                      gguf_block(layer) + "attn_output");
  return PartSpec::tuple({out, pattern});
}

Slot gated_mlp(PlanBuilder& b, const TextShape& s, int layer, Slot x) {
  auto scope = b.module("mlp", s.block + "MLP", {"gate_proj", "up_proj", "down_proj", "act_fn"});
  scope.arguments({{"", x}});
  const std::string gguf = gguf_block(layer);
  Slot gate = b.linear("gate_proj", {x, {}}, s.hidden, s.inner, false, gguf + "ffn_gate");
  Slot activation = b.activation("act_fn", gate);
  b.value(values::mlp_activation, {activation, {}});
  Slot up = b.linear("up_proj", {x, {}}, s.hidden, s.inner, false, gguf + "ffn_up");
  Slot neurons = b.step(op::Multiply{}, {{activation, {}}, {up, {}}});
  b.value(values::mlp_neurons, {neurons, {}});
  Slot out = b.linear("down_proj", {neurons, {}}, s.inner, s.hidden, false, gguf + "ffn_down");
  scope.returns(out);
  return out;
}

Slot sandwich_block(PlanBuilder& b, const TextShape& s, int layer, Slot x, const BlockKind& kind,
                    const std::function<Slot(Slot)>& attention) {
  auto scope = b.module(std::to_string(layer), s.block + "DecoderLayer",
                        {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                         "post_feedforward_layernorm"});
  scope.arguments(called_with(b, kind, {"", x}, {"attention_mask", "position_embeddings", "position_ids"}));
  scope.attribute("layer_idx", layer);
  const std::string gguf = gguf_block(layer);
  auto norm = [&](const char* name, Slot in, const char* on_disk) {
    return b.norm(name, {in, {}}, s.hidden, s.norm, gguf + on_disk);
  };
  b.value(values::layer_input, {x, {}});
  Slot a = norm("input_layernorm", x, "attn_norm");
  b.value(values::attention_norm_output, {a, {}});
  a = norm("post_attention_layernorm", attention(a), "post_attention_norm");
  b.value(values::attention_output, {a, {}}, with_ending(values::attention_output, ": the post-attention norm's output"));
  Slot mid = b.step(op::Add{}, {{x, {}}, {a, {}}});
  b.value(values::layer_mid, {mid, {}});
  Slot m = norm("pre_feedforward_layernorm", mid, "ffn_norm");
  b.value(values::mlp_norm_output, {m, {}});
  b.value(values::mlp_input, {m, {}});
  m = norm("post_feedforward_layernorm", gated_mlp(b, s, layer, m), "post_ffw_norm");
  b.value(values::mlp_output, {m, {}}, with_ending(values::mlp_output, ": the post-feedforward norm's output"));
  Slot out = b.step(op::Add{}, {{mid, {}}, {m, {}}});
  b.value(values::layer_output, {out, {}});
  scope.returns(out);
  return out;
}

Slot stack(PlanBuilder& b, const std::vector<std::string>& kinds, Slot stream,
           const std::function<Slot(int, Slot)>& block, const std::function<Sizes(int)>& sizes) {
  auto list = b.module("layers", "ModuleList");
  list.no_ports("a list of blocks is not called; its members are");
  for (size_t i = 0; i < kinds.size(); ++i) {
    const int layer = static_cast<int>(i);
    b.begin_layer(layer, sizes ? sizes(layer) : b.plan().sizes, kinds[i]);
    stream = block(layer, stream);
    b.end_layer();
  }
  return stream;
}

Slot final_norm(PlanBuilder& b, const TextShape& s, Slot stream) {
  Slot out = b.norm("norm", {stream, {}}, s.hidden, s.norm, "output_norm");
  b.value(values::final_norm_output, {out, {}});
  b.plan().stream_before_head = out;
  return out;
}

void text_head(PlanBuilder& b, Slot stream, const std::string& text_model, std::optional<double> cap) {
  const Sizes& s = b.plan().sizes;
  Slot logits = b.config().flag("tie_word_embeddings")
                    ? b.tied_linear("lm_head", {stream, {}}, s.hidden_size, s.vocab_size, text_model + ".embed_tokens.weight")
                    : b.linear("lm_head", {stream, {}}, s.hidden_size, s.vocab_size, false, "output");
  b.value(values::lm_head_output, {logits, {}});
  if (cap) logits = b.step(op::Softcap{*cap}, {{logits, {}}});
  b.value(values::logits, {logits, {}});
  Slot probabilities = b.step(op::LastProbabilities{}, {{logits, {}}});
  b.value(values::next_token_probs, {probabilities, {}});
}

Plan text_plan(const Family& family, const Config& config, const RecipeOptions& options) {
  PlanBuilder b(family.model_type, family.class_name, config, {{"model.", ""}});
  run_inputs(b);
  Slot stream = family.text_model(b, {"model", false, b.input_ids()}, options);
  text_head(b, stream, "model", chosen_softcap(config, options));
  text_spellings(b);
  family.about_text(b);
  return b.finish();
}

std::optional<double> chosen_softcap(const Config& c, const RecipeOptions& options) {
  if (options.softcap_choice == "none") return std::nullopt;
  if (options.softcap_choice == "number") return options.final_logit_softcap;
  return c.attributes().contains("final_logit_softcapping") ? c.optional_number("final_logit_softcapping")
                                                            : std::nullopt;
}

void sandwich_notes(PlanBuilder& b) {
  b.plan().identity = "layers[i].input + self_attn.attention_output + mlp.mlp_output == layer_output";
  b.plan().moved = {&values::attention_output, &values::mlp_output, &values::layer_mid, &values::mlp_norm_output};
  b.note("The contributions are the post-norms' outputs",
         "attention_output and mlp_output are what the block adds to the stream. self_attn.output[0] and mlp.output "
         "enter the post-norms, which set the scale: halving them changes almost nothing.");
  b.note(
      "Names that differ from Llama's",
      "post_attention_layernorm is the norm after the attention; the MLP's input norm is pre_feedforward_layernorm.");
  b.note("The norm gain is 1 + weight", "Fold a norm with 1 + model.norm._module.weight, in float32.");
  b.note(
      "Keys and values before repeat_kv",
      "attention_keys and attention_values have num_kv_heads heads: an edit reaches every query head that they serve.");
}

void text_spellings(PlanBuilder& b) {
  b.plan().spellings = {
      {"model.", "model."}, {"model.", "language_model.model."}, {"model.", "model.language_model."}, {"model.", ""}};
  b.plan().ignored_weights = {"**.rotary_emb.inv_freq", "rope_freqs.weight"};
}

}  // namespace v0
}  // namespace gemloupe
