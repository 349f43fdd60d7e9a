// Gemma 4's vision tower (Gemma4VisionModel): a sandwich block with normed queries, keys and values and a rotary table
// over both axes, on as many patches as an image has, and a pooler behind the last block.
//
// Module tree: transformers 5.24.0, models/gemma4/modeling_gemma4.py.
#include "gemloupe/base/errors.h"
#include "gemloupe/family/tower.h"

namespace gemloupe {
inline namespace v0 {
namespace {

const ConfigSchema& schema() {
  static const ConfigSchema schema{"gemma4_vision",
                                   {{"hidden_size", KeyType::Size, 768},
                                    {"intermediate_size", KeyType::Size, 3072},
                                    {"num_hidden_layers", KeyType::Size, 16},
                                    {"num_attention_heads", KeyType::Size, 12},
                                    {"num_key_value_heads", KeyType::Size, 12},
                                    {"head_dim", KeyType::Size, 64},
                                    {"hidden_activation", KeyType::Text, "gelu_pytorch_tanh"},
                                    {"rms_norm_eps", KeyType::Number, 1e-6},
                                    {"max_position_embeddings", KeyType::Size, 131072},
                                    {"attention_bias", KeyType::Flag, false, true},
                                    {"attention_dropout", KeyType::Number, 0.0, true},
                                    {"rope_parameters", KeyType::Object, nullptr, true},
                                    {"pooling_kernel_size", KeyType::Size, 3},
                                    {"patch_size", KeyType::Size, 16},
                                    {"position_embedding_size", KeyType::Size, 10240},
                                    {"use_clipped_linears", KeyType::Flag, false},
                                    {"standardize", KeyType::Flag, false},
                                    {"initializer_range", KeyType::Number, 0.02}},
                                   {"rope_theta"},
                                   {"global_head_dim", "default_output_length"}};
  return schema;
}

constexpr const char* kNorm = "Gemma4RMSNorm";

struct Recipe {
  PlanBuilder& b;
  int64_t width, inner, heads, kv_heads, head_dim;
  bool clipped;

  void linear(const char* name, int64_t in, int64_t out) { gemma4_clippable_linear(b, name, in, out, clipped); }

  void attention() {
    auto scope = b.module("self_attn", "Gemma4VisionAttention");
    linear("q_proj", width, heads * head_dim);
    linear("k_proj", width, kv_heads * head_dim);
    linear("v_proj", width, kv_heads * head_dim);
    linear("o_proj", heads * head_dim, width);
    tower::rms_norm(b, "q_norm", kNorm, head_dim);
    tower::rms_norm(b, "k_norm", kNorm, head_dim);
    tower::rms_norm(b, "v_norm", kNorm, 0);
  }

  void mlp() {
    auto scope = b.module("mlp", "Gemma4VisionMLP");
    linear("gate_proj", width, inner);
    linear("up_proj", width, inner);
    linear("down_proj", inner, width);
    tower::leaf(b, "act_fn", "GELUTanh");
  }

  void block(int index) {
    using namespace values::vision;
    b.begin_vision_layer(index);
    auto scope = b.module(std::to_string(index), "Gemma4VisionEncoderLayer");
    attention();
    mlp();
    for (const char* norm :
         {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"})
      tower::rms_norm(b, norm, kNorm, width);
    for (const ValueSpec* spec :
         {&layer_input, &attention_norm_output, &layer_mid, &mlp_norm_output, &mlp_input, &layer_output,
          &attention_queries, &attention_keys, &attention_values, &attention_scores, &attention_premix,
          &attention_probabilities, &attention_head_outputs, &mlp_activation, &mlp_neurons})
      b.not_in_this_run(*spec);
    b.not_in_this_run(attention_output, with_ending(attention_output, ": the post-attention norm's output"));
    b.not_in_this_run(mlp_output, with_ending(mlp_output, ": the post-feedforward norm's output"));
    b.end_vision_layer();
  }
};

void sizes(PlanBuilder& b, const Config& c, int64_t text_width) {
  Vision& v = b.plan().vision.emplace();
  const int64_t dim = c.integer("head_dim");
  v.num_layers = c.integer("num_hidden_layers");
  v.patch_size = c.integer("patch_size");
  v.image_size = "varies";
  v.sizes = {text_width,
             c.integer("num_attention_heads"),
             c.integer("num_key_value_heads"),
             dim,
             dim,
             c.integer("intermediate_size"),
             0,
             0,
             0,
             c.integer("hidden_size")};
}

}  // namespace

Config read_gemma4_vision_config(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  Config c = read_config(schema(), raw, where, ignore);
  json& rope = c.attributes()["rope_parameters"];
  if (rope.is_null()) rope = json::object();
  if (!rope.contains("rope_theta")) rope["rope_theta"] = raw.value("rope_theta", json(100.0));
  if (!rope.contains("rope_type")) rope["rope_type"] = "axial";
  if (rope["rope_type"] != "axial")
    throw BadConfig(where + ": rope_type " + rope["rope_type"].dump() + " is not 'axial', Gemma 4's.");
  if (c.integer("num_attention_heads") % c.integer("num_key_value_heads"))
    throw BadConfig(where + ": num_attention_heads (" + std::to_string(c.integer("num_attention_heads")) +
                    ") is no multiple of num_key_value_heads (" + std::to_string(c.integer("num_key_value_heads")) +
                    ").");
  if (c.text("hidden_activation") != "gelu_pytorch_tanh")
    throw BadConfig(where + ": hidden_activation '" + c.text("hidden_activation") +
                    "' is not 'gelu_pytorch_tanh', Gemma's.");
  return c;
}

void gemma4_clippable_linear(PlanBuilder& b, const std::string& name, int64_t in, int64_t out, bool clipped) {
  auto scope = b.module(name, "Gemma4ClippableLinear");
  if (clipped)
    for (const char* bound : {"input_min", "input_max", "output_min", "output_max"})
      b.parameter(bound, {}, "", /*buffer=*/true);
  tower::linear(b, "linear", in, out, false);
}

void gemma4_embedder(PlanBuilder& b, const std::string& name, const std::string& prefix, int64_t in, int64_t out) {
  auto scope = b.module(name, prefix + "MultimodalEmbedder");
  tower::linear(b, "embedding_projection", in, out, false);
  tower::rms_norm(b, "embedding_pre_projection_norm", prefix + "RMSNorm", 0);
}

void gemma4_vision_tower(PlanBuilder& b, const Config& c, int64_t text_width) {
  sizes(b, c, text_width);
  const PlanBuilder::NotRun not_run(b, kNeedsImage);
  const Sizes& s = b.plan().vision->sizes;
  Recipe r{b,          s.vision_hidden_size,         s.intermediate_size, s.num_heads, s.num_kv_heads,
           s.head_dim, c.flag("use_clipped_linears")};
  auto scope = b.module("vision_tower", "Gemma4VisionModel");
  if (c.flag("standardize"))
    for (const char* name : {"std_bias", "std_scale"}) b.parameter(name, {r.width}, "", /*buffer=*/true);
  {
    auto embedder = b.module("patch_embedder", "Gemma4VisionPatchEmbedder");
    b.parameter("position_embedding_table", {2, c.integer("position_embedding_size"), r.width}, "");
    tower::linear(b, "input_proj", 3 * c.integer("patch_size") * c.integer("patch_size"), r.width, false);
  }
  {
    auto encoder = b.module("encoder", "Gemma4VisionEncoder");
    tower::leaf(b, "rotary_emb", "Gemma4VisionRotaryEmbedding");
    auto layers = b.module("layers", "ModuleList");
    for (int i = 0; i < c.integer("num_hidden_layers"); ++i) r.block(i);
  }
  tower::leaf(b, "pooler", "Gemma4VisionPooler");
  scope.shows({{"encoder", "encoder"},
               {"pooler", "pooler"},
               {"patch_embed", "patch_embedder.input_proj"},
               {"layers", "encoder.layers"}});
  for (const ValueSpec* spec :
       {&values::vision::patch_embeddings, &values::vision::tower_output, &values::vision::image_features})
    b.not_in_this_run(*spec);
}

}  // namespace v0
}  // namespace gemloupe
