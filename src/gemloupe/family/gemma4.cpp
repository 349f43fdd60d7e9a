// Gemma 4, text (Gemma4ForCausalLM): a sandwich block with normed queries, keys and values, whose sum a learned scalar
// multiplies. E2B and E4B add per-layer embeddings and borrow keys and values in their last blocks; 26B-A4B runs a
// mixture of experts beside the dense MLP.
//
// Order of operations: transformers 5.24.0, models/gemma4/modeling_gemma4.py.
#include "gemloupe/family/gemma4.h"

#include <cmath>
#include <map>
#include <tuple>

namespace gemloupe {
inline namespace v0 {
namespace {

struct Recipe {
  PlanBuilder& b;
  TextShape root;
  std::map<std::string, BlockKind> kinds;
  std::map<std::string, std::pair<Slot, Slot>> lent;  ///< by kind: the keys and values that later blocks borrow
  std::vector<Slot> per_layer;  ///< each block's slice of the per-layer inputs, where there are any
  bool mixture = false;

  const Config& config() const { return b.config(); }
  Gemma4Block block_of(int layer) const { return gemma4_block(config(), layer); }

  TextShape shape_of(int layer) const {
    const Gemma4Block block = block_of(layer);
    TextShape s = root;
    s.head_dim = block.head_dim;
    s.kv_heads = block.kv_heads;
    s.inner = block.inner;
    return s;
  }

  Sizes sizes(const TextShape& s) const {
    Sizes sizes = sizes_of(s);
    if (mixture) sizes.num_experts = config().integer("num_experts"), sizes.top_k = config().integer("top_k_experts");
    return sizes;
  }

  // ---------------------------------------------------------------------------------------------- before the blocks

  BlockKind kind(const std::string& name, Slot stream) {
    BlockKind k;
    k.name = name;
    k.rule.bidirectional = config().attributes()["use_bidirectional_attention"] == "all";
    k.rule.far_end = k.rule.bidirectional;
    if (name == kSliding) k.rule.window = config().integer("sliding_window");
    k.mask = mask_step(b, k.rule, stream);
    const auto types = config().texts("layer_types");
    const auto first = std::find(types.begin(), types.end(), name) - types.begin();
    const int64_t head_dim = block_of(static_cast<int>(first)).head_dim;
    RotaryFrequencies frequencies = frequencies_of(config().attributes()["rope_parameters"][name], head_dim);
    std::tie(k.cos, k.sin) = b.step2(op::Rotary{frequencies}, {{b.position_ids(), {}}, {stream, {}}});
    return k;
  }

  /// Every block's own input: the token's row of a table, and a projection of its embedding.
  void per_layer_inputs(const TextPlace& place, PlanBuilder::Scope& scope, Slot embeddings) {
    const int64_t width = config().integer("hidden_size_per_layer_input"),
                  blocks = config().integer("num_hidden_layers");
    const View split{View::Kind::Heads, width};
    Slot table =
        b.embed("embed_tokens_per_layer", root.prefix + "TextScaledWordEmbedding", place.ids,
                config().integer("vocab_size_per_layer_input"), blocks * width, std::sqrt(static_cast<double>(width)),
                config().optional_integer("pad_token_id"), "per_layer_token_embd");
    if (place.inside)
      scope.arguments({{"per_layer_inputs", Operand{table, split}},
                       {"position_ids", b.position_ids()},
                       {"inputs_embeds", embeddings}});
    Slot projected = b.linear("per_layer_model_projection", {embeddings, {}}, root.hidden, blocks * width, false,
                              "per_layer_model_proj");
    projected = b.step(op::Scale{std::pow(static_cast<double>(root.hidden), -0.5)}, {{projected, {}}});
    projected = b.norm("per_layer_projection_norm", {projected, split}, width, root.norm, "per_layer_proj_norm");
    Slot sum = b.step(op::Add{}, {{projected, {}}, {table, split}});
    sum = b.step(op::Scale{std::pow(2.0, -0.5)}, {{sum, {}}});
    per_layer = b.steps(op::Split{}, {{sum, {}}}, static_cast<size_t>(blocks));
  }

  // ------------------------------------------------------------------------------------------------------ attention

  /// The block's own keys and values, or a copy of those that it borrows.
  std::pair<Slot, Slot> keys_and_values(const TextShape& s, int layer, Slot a, const BlockKind& kind) {
    const Gemma4Block block = block_of(layer);
    if (block.borrows) {
      auto [keys, values] = lent.at(kind.name);
      return b.step2(op::Borrow{}, {{keys, {}}, {values, {}}});
    }
    const std::string gguf = "blk." + std::to_string(layer) + ".";
    const View heads{View::Kind::Heads, s.head_dim}, heads_first{View::Kind::Transposed, 0};
    Slot k = b.linear("k_proj", {a, {}}, s.hidden, s.kv_heads * s.head_dim, s.bias, gguf + "attn_k");
    Slot v = block.keys_are_values
                 ? k
                 : b.linear("v_proj", {a, {}}, s.hidden, s.kv_heads * s.head_dim, s.bias, gguf + "attn_v");
    Slot keys = b.norm("k_norm", {k, heads}, s.head_dim, s.norm, gguf + "attn_k_norm");
    keys = b.step(op::Rotate{2}, {{keys, {}}, {kind.cos, {}}, {kind.sin, {}}});
    PlanBuilder::NormStyle without_gain = s.norm;
    without_gain.gain = Gain::None;
    Slot values = b.norm("v_norm", {v, heads}, s.head_dim, without_gain, "");
    auto own = b.step2(op::Extend{layer, kind.rule.window}, {{keys, heads_first}, {values, heads_first}});
    if (is_lender(layer)) {
      // What is lent is nobody's value: an edit of this block's keys reaches no borrower.
      const int cache = static_cast<int>(config().integer("num_hidden_layers") + static_cast<int64_t>(lent.size()));
      lent[kind.name] =
          b.step2(op::Extend{cache, kind.rule.window, true}, {{keys, heads_first}, {values, heads_first}});
    }
    return own;
  }

  /// The last block of its kind with keys and values of its own, where later ones borrow them.
  bool is_lender(int layer) const {
    const Gemma4Block block = block_of(layer);
    bool borrowed = false;
    for (int later = layer + 1; later < config().integer("num_hidden_layers"); ++later) {
      const Gemma4Block other = block_of(later);
      if (other.kind == block.kind && !other.borrows) return false;
      borrowed = borrowed || other.kind == block.kind;
    }
    return borrowed;
  }

  Slot attention(const TextShape& s, int layer, Slot a, const BlockKind& kind) {
    auto scope = b.module("self_attn", s.block + "Attention",
                          {"q_proj", "q_norm", "k_norm", "v_norm", "k_proj", "v_proj", "o_proj"});
    scope.arguments(
        called_with(b, kind, {"hidden_states", a}, {"position_embeddings", "attention_mask", "position_ids"}));
    attention_attributes(scope, s, layer, 1.0);
    scope.attribute("sliding_window", kind.name == kSliding ? json(config().integer("sliding_window")) : json());
    scope.attribute("is_sliding", kind.name == kSliding);
    scope.attribute("layer_type", kind.name);
    scope.attribute("is_kv_shared_layer", block_of(layer).borrows);
    const std::string gguf = "blk." + std::to_string(layer) + ".";
    Slot q = b.linear("q_proj", {a, {}}, s.hidden, s.heads * s.head_dim, s.bias, gguf + "attn_q");
    q = b.norm("q_norm", {q, {View::Kind::Heads, s.head_dim}}, s.head_dim, s.norm, gguf + "attn_q_norm");
    q = b.step(op::Rotate{2}, {{q, {}}, {kind.cos, {}}, {kind.sin, {}}});
    auto [keys, values] = keys_and_values(s, layer, a, kind);
    Slot mixed = b.attention({q, {View::Kind::Transposed, 0}}, keys, values, kind.mask, 1.0, std::nullopt, kind.rule);
    Slot pattern = b.plan().steps.back().inputs[0].slot;
    Slot out = b.linear("o_proj", {mixed, {View::Kind::Flat, s.head_dim}}, s.heads * s.head_dim, s.hidden, s.bias,
                        gguf + "attn_output");
    scope.returns(PartSpec::tuple({out, pattern}));
    return out;
  }

  // ---------------------------------------------------------------------------------------------------- feed-forward

  std::pair<Slot, Slot> route(const TextShape& s, int layer, Slot mid) {
    auto scope = b.module("router", s.block + "Router", {"norm", "proj"});
    scope.arguments({{"", mid}});
    const std::string gguf = "blk." + std::to_string(layer) + ".ffn_gate_inp";
    const int64_t experts = config().integer("num_experts");
    PlanBuilder::NormStyle without_gain = s.norm;
    without_gain.gain = Gain::None;
    Slot x = b.norm("norm", {mid, {}}, s.hidden, without_gain, "");
    x = b.step(op::Multiply{}, {{x, {}}}, {b.parameter("scale", {s.hidden}, gguf + ".scale")});
    x = b.step(op::Scale{std::pow(static_cast<double>(s.hidden), -0.5)}, {{x, {}}});
    Slot logits = b.linear("proj", {x, {}}, s.hidden, experts, false, gguf);
    b.value(values::router_logits, {logits, {}});
    Slot probabilities = b.step(op::RouterProbabilities{}, {{logits, {}}});
    const WeightId scale =
        b.parameter("per_expert_scale", {experts}, "blk." + std::to_string(layer) + ".ffn_down_exps.scale");
    auto [weights, indices] = b.step2(op::Route{config().integer("top_k_experts")}, {{probabilities, {}}}, {scale});
    scope.returns(PartSpec::tuple({probabilities, weights, indices}));
    return {weights, indices};
  }

  Slot run_experts(const TextShape& s, int layer, Slot x, Slot weights, Slot indices) {
    auto scope = b.module("experts", s.block + "Experts", {"act_fn"});
    scope.arguments({{"", x}, {"", indices}, {"", weights}});
    const std::string gguf = "blk." + std::to_string(layer) + ".";
    const int64_t experts = config().integer("num_experts"), inner = config().integer("moe_intermediate_size");
    scope.attribute("num_experts", experts);
    scope.attribute("hidden_dim", s.hidden);
    scope.attribute("intermediate_dim", inner);
    b.value(values::expert_weights, {weights, {}});
    b.value(values::expert_indices, {indices, {}});
    auto [gate, up] =
        b.step2(op::ExpertsGateUp{}, {{x, {}}, {indices, {}}},
                {b.parameter("gate_up_proj", {experts, 2 * inner, s.hidden}, gguf + "ffn_gate_up_exps.weight")});
    Slot neurons = -1;
    {
      PlanBuilder::RowPorts sorted_by_expert(b, false);
      neurons = b.activation("act_fn", gate);
    }
    neurons = b.step(op::Multiply{}, {{neurons, {}}, {up, {}}});
    Slot outputs = b.step(op::ExpertsDown{}, {{neurons, {}}, {indices, {}}, {weights, {}}},
                          {b.parameter("down_proj", {experts, s.hidden, inner}, gguf + "ffn_down_exps.weight")});
    b.value(values::expert_outputs, {outputs, {}});
    Slot routed = b.step(op::SumSlots{}, {{outputs, {}}, {x, {}}});
    b.value(values::routed_output, {routed, {}});
    scope.returns(routed);
    return routed;
  }

  /// The experts beside the dense MLP, whose output `dense` is.
  Slot mixture_of(const TextShape& s, int layer, Slot mid, Slot dense) {
    const std::string gguf = "blk." + std::to_string(layer) + ".";
    b.value(values::shared_expert_output, {dense, {}});
    dense = b.norm("post_feedforward_layernorm_1", {dense, {}}, s.hidden, s.norm, gguf + "post_ffw_norm_1");
    Slot routed = -1;
    {
      // The reference flattens batch and positions for the router and the experts.
      PlanBuilder::RowPorts rows(b);
      auto [weights, indices] = route(s, layer, mid);
      Slot x = b.norm("pre_feedforward_layernorm_2", {mid, {}}, s.hidden, s.norm, gguf + "pre_ffw_norm_2");
      routed = run_experts(s, layer, x, weights, indices);
    }
    routed = b.norm("post_feedforward_layernorm_2", {routed, {}}, s.hidden, s.norm, gguf + "post_ffw_norm_2");
    return b.step(op::Add{}, {{dense, {}}, {routed, {}}});
  }

  Slot per_layer_branch(const TextShape& s, int layer, Slot stream) {
    const std::string gguf = "blk." + std::to_string(layer) + ".";
    const int64_t width = config().integer("hidden_size_per_layer_input");
    Slot p = b.linear("per_layer_input_gate", {stream, {}}, s.hidden, width, false, gguf + "inp_gate");
    p = b.activation("act_fn", p);
    p = b.step(op::Multiply{}, {{p, {}}, {per_layer[static_cast<size_t>(layer)], {}}});
    p = b.linear("per_layer_projection", {p, {}}, width, s.hidden, false, gguf + "proj");
    p = b.norm("post_per_layer_input_norm", {p, {}}, s.hidden, s.norm, gguf + "post_norm");
    b.value(values::per_layer_output, {p, {}});
    return b.step(op::Add{}, {{stream, {}}, {p, {}}});
  }

  // ----------------------------------------------------------------------------------------------------------- block

  std::vector<std::string> children() const {
    std::vector<std::string> names{"self_attn",
                                   "mlp",
                                   "input_layernorm",
                                   "post_attention_layernorm",
                                   "pre_feedforward_layernorm",
                                   "post_feedforward_layernorm"};
    if (!per_layer.empty())
      names.insert(names.end(),
                   {"act_fn", "per_layer_input_gate", "per_layer_projection", "post_per_layer_input_norm"});
    if (mixture)
      names.insert(names.end(), {"router", "experts", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2",
                                 "pre_feedforward_layernorm_2"});
    return names;
  }

  Slot block(int layer, Slot x) {
    const TextShape s = shape_of(layer);
    const BlockKind& kind = kinds.at(block_of(layer).kind);
    const std::string gguf = "blk." + std::to_string(layer) + ".";
    auto scope = b.module(std::to_string(layer), s.block + "DecoderLayer", children());
    auto arguments = called_with(b, kind, {"", x}, {"position_embeddings", "attention_mask", "position_ids"});
    // The unified family's blocks are called without; the others' with None where there is none.
    if (!per_layer.empty())
      arguments.insert(arguments.begin() + 1, {"", per_layer[static_cast<size_t>(layer)]});
    else if (config().attributes()["model_type"] == "gemma4_text")
      arguments.insert(arguments.begin() + 1, {"", PartSpec()});
    scope.arguments(std::move(arguments));
    scope.attribute("layer_idx", layer);
    auto norm = [&](const char* name, Slot in, const char* on_disk) {
      return b.norm(name, {in, {}}, s.hidden, s.norm, gguf + on_disk);
    };
    b.value(values::layer_input, {x, {}});
    Slot a = norm("input_layernorm", x, "attn_norm");
    b.value(values::attention_norm_output, {a, {}});
    a = norm("post_attention_layernorm", attention(s, layer, a, kind), "post_attention_norm");
    b.value(values::attention_output, {a, {}},
            with_ending(values::attention_output, ": the post-attention norm's output"));
    Slot mid = b.step(op::Add{}, {{x, {}}, {a, {}}});
    b.value(values::layer_mid, {mid, {}});
    Slot m = norm("pre_feedforward_layernorm", mid, "ffn_norm");
    b.value(values::mlp_norm_output, {m, {}});
    b.value(values::mlp_input, {m, {}});
    m = gated_mlp(b, s, layer, m);
    if (mixture) m = mixture_of(s, layer, mid, m);
    m = norm("post_feedforward_layernorm", m, "post_ffw_norm");
    b.value(values::mlp_output, {m, {}},
            "What the MLP (and, on a mixture block, the experts) adds to the residual stream: the post-feedforward "
            "norm's output");
    Slot out = b.step(op::Add{}, {{mid, {}}, {m, {}}});
    if (!per_layer.empty()) out = per_layer_branch(s, layer, out);
    mark_absent_values();
    const WeightId scalar = b.parameter("layer_scalar", {1}, gguf + "layer_output_scale.weight", /*buffer=*/true);
    out = b.step(op::Multiply{}, {{out, {}}}, {scalar});
    b.value(values::layer_output, {out, {}});
    scope.returns(out);
    return out;
  }

  void mark_absent_values() {
    if (per_layer.empty()) b.absent(values::per_layer_output, "no per-layer embeddings in this checkpoint");
    if (mixture) return;
    for (const ValueSpec* spec : {&values::router_logits, &values::expert_weights, &values::expert_indices,
                                  &values::expert_outputs, &values::routed_output, &values::shared_expert_output})
      b.absent(*spec, "dense checkpoint: no mixture");
  }

  Slot text_model(const TextPlace& place) {
    auto scope = b.module(place.module, root.block + "Model",
                          {"embed_tokens", "layers", "norm", "rotary_emb", "embed_tokens_per_layer",
                           "per_layer_model_projection", "per_layer_projection_norm"});
    Slot stream = scaled_embedding(b, root, scope, place);
    const json& width = config().attributes().value("hidden_size_per_layer_input", json(0));
    if (width != 0) per_layer_inputs(place, scope, stream);
    {
      auto rotary = b.module("rotary_emb", root.block + "RotaryEmbedding");
      rotary.no_ports("it runs once per kind of block; its tables are layers[i].inputs' position_embeddings");
      for (const std::string& name : config().texts("layer_types"))
        if (!kinds.contains(name)) kinds[name] = kind(name, stream);
    }
    stream = stack(
        b, config().texts("layer_types"), stream, [&](int layer, Slot x) { return block(layer, x); },
        [&](int layer) { return sizes(shape_of(layer)); });
    stream = final_norm(b, root, stream);
    scope.returns(PartSpec::tuple({stream}, {"last_hidden_state"}));
    return stream;
  }
};

// ------------------------------------------------------------------------------------------------------------- config

const ConfigSchema& schema() {
  static const ConfigSchema schema = [] {
    ConfigSchema s{"gemma4_text", gemma4_keys(131072, 512), gemma4_legacy_keys()};
    s.keys.push_back({"vocab_size_per_layer_input", KeyType::Size, 262144});
    s.keys.push_back({"hidden_size_per_layer_input", KeyType::Integer, 256});
    s.keys.push_back({"enable_moe_block", KeyType::Flag, false});
    for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"})
      s.keys.push_back({key, KeyType::Size, nullptr, true});
    return s;
  }();
  return schema;
}

Config read(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  Config c = read_config(schema(), raw, where, ignore);
  complete_gemma4_config(raw, c, where);
  return c;
}

Slot text_model(PlanBuilder& b, const TextPlace& place, const RecipeOptions&) {
  return gemma4_text_model(b, "Gemma4", place);
}

}  // namespace

Slot gemma4_text_model(PlanBuilder& b, const std::string& prefix, const TextPlace& place) {
  TextShape root = text_shape(b.config(), prefix);
  root.block = prefix + "Text";
  root.norm = {prefix + "RMSNorm", root.norm.eps, Gain::Weight, /*summary_has_shape=*/false};
  Recipe r{b, root, {}, {}, {}, b.config().attributes().value("enable_moe_block", json(false)) == true};
  b.plan().sizes = r.sizes(root);
  return r.text_model(place);
}

void about_gemma4(PlanBuilder& b) {
  // Released files hold keys and values of blocks that borrow, for which the reference has no place either.
  for (int64_t i = 0; i < b.config().integer("num_hidden_layers"); ++i)
    if (gemma4_block(b.config(), static_cast<int>(i)).borrows) {
      for (const char* name : {"k_proj", "v_proj", "k_norm", "v_norm"})
        b.plan().ignored_weights.push_back("**layers." + std::to_string(i) + ".self_attn." + name + ".*");
      for (const char* name : {"attn_k", "attn_v", "attn_k_norm"})
        b.plan().ignored_weights.push_back("blk." + std::to_string(i) + "." + name + ".*");
    }
  const json& width = b.config().attributes().value("hidden_size_per_layer_input", json(0));
  const std::string third = width != 0 ? " + per_layer_output" : "";
  b.plan().identity =
      "(layers[i].input + self_attn.attention_output + mlp.mlp_output" + third + ") * layer_scalar == layer_output";
  b.plan().moved = {&values::attention_keys, &values::attention_values, &values::attention_output,
                    &values::mlp_output,     &values::router_logits,    &values::shared_expert_output,
                    &values::layer_mid,      &values::mlp_norm_output,  &values::per_layer_output};
  b.note("The block's sum is scaled, its terms are served unscaled",
         "attention_output, mlp_output and per_layer_output are the post-norms' outputs, before layer_scalar "
         "(layers[i]._module.layer_scalar) multiplies the sum: a vector added to mlp_output reaches layer_output times "
         "the scalar.");
  b.note("The norm gain is the weight", "Fold a norm with model.norm._module.weight as it is, in float32.");
  b.note("The scores are not scaled", "q_norm and k_norm set the temperature; v_norm gives each value head RMS 1.");
  b.note("Borrowed keys and values",
         "A block that borrows attends with a private copy of its source's keys and values: an edit of the source's "
         "attention_keys stays there, an edit of its k_proj output reaches every borrower.");
}

extern const Family gemma4_family;
const Family gemma4_family{
    "gemma4_text",
    "Gemma4ForCausalLM",
    "gemma4",
    read,
    [](const Config& config, const RecipeOptions& options) { return text_plan(gemma4_family, config, options); },
    gemma4_config_from_gguf,
    gemma4_gguf_of_config,
    text_model,
    about_gemma4};

}  // namespace v0
}  // namespace gemloupe
