// Gemma 3, text (Gemma3ForCausalLM): a sandwich block, x + post_norm(f(norm(x))) twice, with normed queries and keys,
// five sliding-window blocks before each full one, and a rotary table for each kind.
//
// Order of operations: transformers 5.24.0, models/gemma3/modeling_gemma3.py.
#include <cmath>

#include "gemloupe/base/errors.h"
#include "gemloupe/family/family.h"
#include "gemloupe/plan/builder.h"

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";

// ------------------------------------------------------------------------------------------------------------- config

const ConfigSchema& schema() {
  static const ConfigSchema schema{"gemma3_text",
                                   {{"vocab_size", KeyType::Size, 262208},
                                    {"hidden_size", KeyType::Size, 2304},
                                    {"intermediate_size", KeyType::Size, 9216},
                                    {"num_hidden_layers", KeyType::Size, 26},
                                    {"num_attention_heads", KeyType::Size, 8},
                                    {"num_key_value_heads", KeyType::Size, 4},
                                    {"head_dim", KeyType::Size, 256},
                                    {"hidden_activation", KeyType::Text, "gelu_pytorch_tanh"},
                                    {"max_position_embeddings", KeyType::Size, 131072},
                                    {"initializer_range", KeyType::Number, 0.02},
                                    {"rms_norm_eps", KeyType::Number, 1e-6},
                                    {"use_cache", KeyType::Flag, true},
                                    {"pad_token_id", KeyType::Integer, 0, true},
                                    {"eos_token_id", KeyType::Any, 1, true},
                                    {"bos_token_id", KeyType::Integer, 2, true},
                                    {"tie_word_embeddings", KeyType::Flag, true},
                                    {"rope_parameters", KeyType::Object, nullptr, true},
                                    {"attention_bias", KeyType::Flag, false},
                                    {"attention_dropout", KeyType::Number, 0.0, true},
                                    {"query_pre_attn_scalar", KeyType::Number, 256},
                                    {"sliding_window", KeyType::Size, 4096, true},
                                    {"layer_types", KeyType::Texts, nullptr, true},
                                    {"final_logit_softcapping", KeyType::Number, nullptr, true},
                                    {"attn_logit_softcapping", KeyType::Number, nullptr, true},
                                    {"use_bidirectional_attention", KeyType::Flag, false, true}},
                                   {"rope_theta", "rope_local_base_freq", "rope_scaling", "sliding_window_pattern"}};
  return schema;
}

/// `rope_parameters` in the reference's form, from it or from the keys of released files.
json rope_parameters(const json& raw, const std::string& where) {
  json rope =
      raw.contains("rope_parameters") && raw["rope_parameters"].is_object() ? raw["rope_parameters"] : json::object();
  for (const char* kind : {kSliding, kFull})
    if (!rope.contains(kind) || rope[kind].is_null()) rope[kind] = json{{"rope_type", "default"}};
  if (raw.contains("rope_scaling") && raw["rope_scaling"].is_object()) rope[kFull].update(raw["rope_scaling"]);
  auto theta = [&](const char* kind, const char* legacy, double standard) {
    json& table = rope[kind];
    if (!table.is_object()) throw BadConfig(where + ": rope_parameters['" + kind + "'] must be an object.");
    if (!table.contains("rope_type")) table["rope_type"] = table.value("type", "default");
    if (!table.contains("rope_theta")) table["rope_theta"] = raw.contains(legacy) ? raw[legacy] : json(standard);
    if (!table["rope_theta"].is_number() || table["rope_theta"].get<double>() <= 0)
      throw BadConfig(where + ": rope_parameters['" + kind + "']: rope_theta must be a number above 0.");
    if (!table["rope_type"].is_string() || (table["rope_type"] != "default" && table["rope_type"] != "linear"))
      throw BadConfig(where + ": rope_parameters['" + kind + "']: rope_type " + table["rope_type"].dump() +
                      " is none of 'default' and 'linear', which Gemma 3 uses.");
    if (table["rope_type"] == "linear" &&
        (!table.contains("factor") || !table["factor"].is_number() || table["factor"].get<double>() <= 0))
      throw BadConfig(where + ": rope_parameters['" + kind + "']: rope_type 'linear' needs a 'factor' above 0.");
  };
  theta(kFull, "rope_theta", 1e6);
  theta(kSliding, "rope_local_base_freq", 1e4);
  return rope;
}

void check_layer_types(const Config& c, const std::string& where) {
  auto kinds = c.texts("layer_types");
  if (static_cast<int64_t>(kinds.size()) != c.integer("num_hidden_layers"))
    throw BadConfig(where + ": layer_types names " + std::to_string(kinds.size()) + " blocks, num_hidden_layers says " +
                    std::to_string(c.integer("num_hidden_layers")) + ".");
  for (const std::string& kind : kinds)
    if (kind != kSliding && kind != kFull)
      throw BadConfig(where + ": layer_types holds '" + kind + "', which is neither '" + kSliding + "' nor '" + kFull +
                      "'.");
}

Config read(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  Config c = read_config(schema(), raw, where, ignore);
  json& a = c.attributes();
  a["rope_parameters"] = rope_parameters(raw, where);
  int64_t pattern = 6;
  if (raw.contains("sliding_window_pattern")) {
    if (!raw["sliding_window_pattern"].is_number_integer() || raw["sliding_window_pattern"].get<int64_t>() < 1)
      throw BadConfig(where + ": sliding_window_pattern must be an integer from 1.");
    a["sliding_window_pattern"] = pattern = raw["sliding_window_pattern"].get<int64_t>();
  }
  if (!a.contains("_sliding_window_pattern")) a["_sliding_window_pattern"] = pattern;
  if (a["layer_types"].is_null()) {
    a["layer_types"] = json::array();
    for (int64_t i = 0; i < c.integer("num_hidden_layers"); ++i)
      a["layer_types"].push_back((i + 1) % pattern ? kSliding : kFull);
  }
  // The reference's flash attention takes exclusive bounds.
  if (c.flag("use_bidirectional_attention") && !a["sliding_window"].is_null())
    a["sliding_window"] = a["sliding_window"].get<int64_t>() / 2 + 1;
  check_layer_types(c, where);
  if (c.integer("num_attention_heads") % c.integer("num_key_value_heads"))
    throw BadConfig(where + ": num_attention_heads (" + std::to_string(c.integer("num_attention_heads")) +
                    ") is no multiple of num_key_value_heads (" + std::to_string(c.integer("num_key_value_heads")) +
                    ").");
  if (c.integer("hidden_size") % c.integer("num_attention_heads"))
    throw BadConfig(where + ": hidden_size (" + std::to_string(c.integer("hidden_size")) +
                    ") is no multiple of num_attention_heads (" + std::to_string(c.integer("num_attention_heads")) +
                    "), which the reference refuses.");
  if (c.integer("head_dim") % 2) throw BadConfig(where + ": head_dim must be even, the rotary embedding turns pairs.");
  if (c.number("query_pre_attn_scalar") <= 0) throw BadConfig(where + ": query_pre_attn_scalar must be above 0.");
  if (c.text("hidden_activation") != "gelu_pytorch_tanh")
    throw BadConfig(where + ": hidden_activation '" + c.text("hidden_activation") +
                    "' is not 'gelu_pytorch_tanh', Gemma 3's.");
  return c;
}

json config_from_gguf(const Checkpoint& checkpoint) {
  const json& g = checkpoint.gguf_metadata();
  json c{{"model_type", "gemma3_text"}, {"architectures", {"Gemma3ForCausalLM"}}};
  auto take = [&](const char* key, const char* name) {
    if (auto found = g.find(std::string("gemma3.") + key); found != g.end()) c[name] = *found;
  };
  take("block_count", "num_hidden_layers");
  take("context_length", "max_position_embeddings");
  take("embedding_length", "hidden_size");
  take("feed_forward_length", "intermediate_size");
  take("attention.head_count", "num_attention_heads");
  take("attention.head_count_kv", "num_key_value_heads");
  take("attention.key_length", "head_dim");
  take("attention.layer_norm_rms_epsilon", "rms_norm_eps");
  take("attention.sliding_window", "sliding_window");
  take("rope.freq_base", "rope_theta");
  take("rope.freq_base_swa", "rope_local_base_freq");
  take("final_logit_softcapping", "final_logit_softcapping");
  if (g.value("gemma3.rope.scaling.type", std::string()) == "linear")
    c["rope_scaling"] = json{{"rope_type", "linear"}, {"factor", g.value("gemma3.rope.scaling.factor", 1.0)}};
  // GGUF has no query_pre_attn_scalar: llama.cpp takes hidden_size / heads on the 27B (62 blocks), else the head's
  // width.
  if (c.contains("num_hidden_layers") && c.contains("hidden_size") && c.contains("num_attention_heads") &&
      c.contains("head_dim"))
    c["query_pre_attn_scalar"] = c["num_hidden_layers"] == 62 && c["num_attention_heads"].get<int64_t>() > 0
                                     ? json(c["hidden_size"].get<int64_t>() / c["num_attention_heads"].get<int64_t>())
                                     : c["head_dim"];
  if (const StoredTensor* embedding = checkpoint.find("token_embd.weight"); embedding && embedding->shape.size() == 2)
    c["vocab_size"] = embedding->shape[0];
  c["tie_word_embeddings"] = checkpoint.find("output.weight") == nullptr;
  return c;
}

// ------------------------------------------------------------------------------------------------------------- recipe

/// What one kind of block shares: its mask and its rotary table.
struct Kind {
  MaskRule rule;
  Slot mask, cos, sin;
};

struct Recipe {
  PlanBuilder& b;
  const Config& c;
  int64_t hidden = c.integer("hidden_size"), heads = c.integer("num_attention_heads"),
          kv_heads = c.integer("num_key_value_heads"), head_dim = c.integer("head_dim"),
          inner = c.integer("intermediate_size");
  PlanBuilder::NormStyle style{"Gemma3RMSNorm", c.number("rms_norm_eps"), Gain::OnePlusWeight};

  Kind kind(const std::string& name, Slot stream) {
    Kind k;
    k.rule.bidirectional = c.flag("use_bidirectional_attention");
    if (name == kSliding) k.rule.window = c.optional_integer("sliding_window");
    k.mask = b.step(op::Mask{k.rule}, {{b.attention_mask(), {}}, {b.position_ids(), {}}, {stream, {}}});
    const json& rope = c.attributes()["rope_parameters"][name];
    RotaryFrequencies frequencies{head_dim, rope["rope_theta"].get<double>(),
                                  rope["rope_type"] == "linear" ? rope["factor"].get<double>() : 1.0};
    std::tie(k.cos, k.sin) = b.step2(op::Rotary{frequencies}, {{b.position_ids(), {}}, {stream, {}}});
    return k;
  }

  Slot attention(int i, Slot a, const Kind& kind) {
    auto scope = b.module("self_attn", "Gemma3Attention", {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"});
    scope.arguments({{"hidden_states", a},
                     {"position_embeddings", PartSpec::tuple({kind.cos, kind.sin})},
                     {"attention_mask", kind.mask},
                     {"position_ids", b.position_ids()}});
    double scale = std::pow(c.number("query_pre_attn_scalar"), -0.5);
    scope.attribute("sliding_window", kind.rule.window ? json(*kind.rule.window) : json());
    scope.attribute("is_sliding", kind.rule.window.has_value());
    scope.attribute("layer_idx", i);
    scope.attribute("head_dim", head_dim);
    scope.attribute("num_key_value_groups", heads / kv_heads);
    scope.attribute("scaling", scale);
    scope.attribute("layer_type", c.texts("layer_types")[static_cast<size_t>(i)]);

    const bool bias = c.flag("attention_bias");
    const std::string gguf = "blk." + std::to_string(i) + ".";
    const View as_heads{View::Kind::HeadsFirst, head_dim};
    Slot q = b.linear("q_proj", {a, {}}, hidden, heads * head_dim, bias, gguf + "attn_q");
    Slot k = b.linear("k_proj", {a, {}}, hidden, kv_heads * head_dim, bias, gguf + "attn_k");
    Slot v = b.linear("v_proj", {a, {}}, hidden, kv_heads * head_dim, bias, gguf + "attn_v");
    q = b.norm("q_norm", {q, as_heads}, head_dim, style, gguf + "attn_q_norm");
    k = b.norm("k_norm", {k, as_heads}, head_dim, style, gguf + "attn_k_norm");
    q = b.step(op::Rotate{}, {{q, {}}, {kind.cos, {}}, {kind.sin, {}}});
    k = b.step(op::Rotate{}, {{k, {}}, {kind.cos, {}}, {kind.sin, {}}});
    auto [keys, values] = b.step2(op::Extend{i, kind.rule.window}, {{k, {}}, {v, as_heads}});
    // Gemma3Attention passes no softcap, whatever attn_logit_softcapping says.
    Slot mixed = b.attention({q, {}}, keys, values, kind.mask, scale, std::nullopt, kind.rule);
    Slot pattern = b.plan().steps.back().inputs[0].slot;
    Slot out =
        b.linear("o_proj", {mixed, {View::Kind::Flat, head_dim}}, heads * head_dim, hidden, bias, gguf + "attn_output");
    scope.returns(PartSpec::tuple({out, pattern}));
    return out;
  }

  Slot mlp(int i, Slot a) {
    auto scope = b.module("mlp", "Gemma3MLP", {"gate_proj", "up_proj", "down_proj", "act_fn"});
    scope.arguments({{"", a}});
    const std::string gguf = "blk." + std::to_string(i) + ".";
    Slot gate = b.linear("gate_proj", {a, {}}, hidden, inner, false, gguf + "ffn_gate");
    Slot activation = b.activation("act_fn", gate);
    b.value(values::mlp_activation, {activation, {}});
    Slot up = b.linear("up_proj", {a, {}}, hidden, inner, false, gguf + "ffn_up");
    Slot neurons = b.step(op::Multiply{}, {{activation, {}}, {up, {}}});
    b.value(values::mlp_neurons, {neurons, {}});
    Slot out = b.linear("down_proj", {neurons, {}}, inner, hidden, false, gguf + "ffn_down");
    scope.returns(out);
    return out;
  }

  Slot block(int i, Slot x, const Kind& kind) {
    auto scope = b.module(std::to_string(i), "Gemma3DecoderLayer",
                          {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm",
                           "pre_feedforward_layernorm", "post_feedforward_layernorm"});
    scope.arguments({{"", x},
                     {"attention_mask", kind.mask},
                     {"position_embeddings", PartSpec::tuple({kind.cos, kind.sin})},
                     {"position_ids", b.position_ids()}});
    scope.attribute("layer_idx", i);
    const std::string gguf = "blk." + std::to_string(i) + ".";
    b.value(values::layer_input, {x, {}});
    Slot a = b.norm("input_layernorm", {x, {}}, hidden, style, gguf + "attn_norm");
    b.value(values::attention_norm_output, {a, {}});
    Slot attended = attention(i, a, kind);
    attended = b.norm("post_attention_layernorm", {attended, {}}, hidden, style, gguf + "post_attention_norm");
    b.value(values::attention_output, {attended, {}}, ": the post-attention norm's output");
    Slot mid = b.step(op::Add{}, {{x, {}}, {attended, {}}});
    b.value(values::layer_mid, {mid, {}});
    Slot m = b.norm("pre_feedforward_layernorm", {mid, {}}, hidden, style, gguf + "ffn_norm");
    b.value(values::mlp_norm_output, {m, {}});
    b.value(values::mlp_input, {m, {}});
    m = mlp(i, m);
    m = b.norm("post_feedforward_layernorm", {m, {}}, hidden, style, gguf + "post_ffw_norm");
    b.value(values::mlp_output, {m, {}}, ": the post-feedforward norm's output");
    Slot out = b.step(op::Add{}, {{mid, {}}, {m, {}}});
    b.value(values::layer_output, {out, {}});
    scope.returns(out);
    return out;
  }

  Slot text_model() {
    auto scope = b.module("model", "Gemma3TextModel", {"embed_tokens", "layers", "norm", "rotary_emb"});
    scope.arguments(
        {{"input_ids", b.input_ids()}, {"attention_mask", b.attention_mask()}, {"position_ids", b.position_ids()}});
    Slot stream =
        b.embed("embed_tokens", "Gemma3TextScaledWordEmbedding", b.input_ids(), c.integer("vocab_size"), hidden,
                std::sqrt(static_cast<double>(hidden)), c.optional_integer("pad_token_id"), "token_embd");
    b.value(values::token_embeddings, {stream, {}});
    auto kinds = c.texts("layer_types");
    std::map<std::string, Kind> shared;
    {
      auto rotary = b.module("rotary_emb", "Gemma3RotaryEmbedding");
      rotary.no_ports("it runs once per kind of block; its tables are layers[i].inputs' position_embeddings");
      for (const std::string& name : kinds)
        if (!shared.contains(name)) shared[name] = kind(name, stream);
    }
    {
      auto list = b.module("layers", "ModuleList");
      list.no_ports("a list of blocks is not called; its members are");
      for (size_t i = 0; i < kinds.size(); ++i) {
        b.begin_layer(static_cast<int>(i), b.plan().sizes, kinds[i]);
        stream = block(static_cast<int>(i), stream, shared[kinds[i]]);
        b.end_layer();
      }
    }
    stream = b.norm("norm", {stream, {}}, hidden, style, "output_norm");
    b.value(values::final_norm_output, {stream, {}});
    scope.returns(PartSpec::tuple({stream}, {"last_hidden_state"}));
    return stream;
  }

  void head(Slot stream, std::optional<double> cap) {
    int64_t vocab = c.integer("vocab_size");
    Slot logits = c.flag("tie_word_embeddings")
                      ? b.tied_linear("lm_head", {stream, {}}, hidden, vocab, "model.embed_tokens.weight")
                      : b.linear("lm_head", {stream, {}}, hidden, vocab, false, "output");
    b.value(values::lm_head_output, {logits, {}});
    if (cap) logits = b.step(op::Softcap{*cap}, {{logits, {}}});
    b.value(values::logits, {logits, {}});
    Slot probabilities = b.step(op::LastProbabilities{}, {{logits, {}}});
    b.value(values::next_token_probs, {probabilities, {}});
  }
};

std::optional<double> softcap(const Config& c, const RecipeOptions& options) {
  if (options.softcap_choice == "none") return std::nullopt;
  if (options.softcap_choice == "number") return options.final_logit_softcap;
  return c.optional_number("final_logit_softcapping");
}

void notes(PlanBuilder& b) {
  b.plan().identity = "layers[i].input + self_attn.attention_output + mlp.mlp_output == layer_output";
  b.plan().moved = {&values::attention_output, &values::mlp_output, &values::layer_mid, &values::mlp_norm_output};
  b.note("The contributions are the post-norms' outputs",
         "attention_output and mlp_output are what the block adds to the stream. self_attn.output[0] and mlp.output "
         "enter the "
         "post-norms, which set the scale: halving them changes almost nothing.");
  b.note(
      "Names that differ from Llama's",
      "post_attention_layernorm is the norm after the attention; the MLP's input norm is pre_feedforward_layernorm.");
  b.note("The norm gain is 1 + weight", "Fold a norm with 1 + model.norm._module.weight, in float32.");
  b.note(
      "Keys and values before repeat_kv",
      "attention_keys and attention_values have num_kv_heads heads: an edit reaches every query head that they serve.");
}

Plan recipe(const Config& config, const RecipeOptions& options) {
  PlanBuilder b("gemma3_text", "Gemma3ForCausalLM", config, {{"model.", ""}});
  const Config& c = b.config();
  Recipe r{b, c};
  b.plan().sizes = {r.hidden, r.heads, r.kv_heads, r.head_dim, r.head_dim, r.inner, c.integer("vocab_size")};
  b.value(values::input_ids, {b.input_ids(), {}});
  b.value(values::attention_mask, {b.attention_mask(), {}});
  b.value(values::input_size, {b.input_ids(), {}});
  Slot stream = r.text_model();
  b.plan().stream_before_head = stream;
  r.head(stream, softcap(c, options));
  // Language models cut out of a multimodal wrapper keep its prefix.
  b.plan().spellings = {
      {"model.", "model."}, {"model.", "language_model.model."}, {"model.", "model.language_model."}, {"model.", ""}};
  b.plan().ignored_weights = {"**.rotary_emb.inv_freq", "rope_freqs.weight"};
  notes(b);
  return b.finish();
}

}  // namespace

extern const Family gemma3_family;
const Family gemma3_family{"gemma3_text", "gemma3", read, recipe, config_from_gguf};

}  // namespace v0
}  // namespace gemloupe
