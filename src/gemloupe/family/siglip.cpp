// SigLIP's vision tower (SiglipVisionModel), of PaliGemma 1 and 2 and of Gemma 3: a pre-norm block without a class
// token, and a norm behind the last one.
//
// Module tree: transformers 5.24.0, models/siglip/modeling_siglip.py.
#include "gemloupe/base/errors.h"
#include "gemloupe/family/tower.h"

namespace gemloupe {
inline namespace v0 {
namespace {

const ConfigSchema& schema() {
  static const ConfigSchema schema{"siglip_vision_model",
                                   {{"hidden_size", KeyType::Size, 768},
                                    {"intermediate_size", KeyType::Size, 3072},
                                    {"num_hidden_layers", KeyType::Size, 12},
                                    {"num_attention_heads", KeyType::Size, 12},
                                    {"num_channels", KeyType::Size, 3},
                                    {"image_size", KeyType::Size, 224},
                                    {"patch_size", KeyType::Size, 16},
                                    {"hidden_act", KeyType::Text, "gelu_pytorch_tanh"},
                                    {"layer_norm_eps", KeyType::Number, 1e-6},
                                    {"attention_dropout", KeyType::Number, 0.0},
                                    {"vision_use_head", KeyType::Flag, true}},
                                   {}};
  return schema;
}

struct Recipe {
  PlanBuilder& b;
  int64_t width, inner;
  double eps;

  void mlp() {
    auto scope = b.module("mlp", "SiglipMLP", {"activation_fn", "fc1", "fc2"});
    tower::leaf(b, "activation_fn", "GELUTanh");
    tower::linear(b, "fc1", width, inner, true);
    tower::linear(b, "fc2", inner, width, true);
  }

  void attention() {
    auto scope = b.module("self_attn", "SiglipAttention");
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) tower::linear(b, name, width, width, true);
  }

  void block(int index) {
    using namespace values::vision;
    b.begin_vision_layer(index);
    auto scope = b.module(std::to_string(index), "SiglipEncoderLayer");
    tower::layer_norm(b, "layer_norm1", width, eps);
    attention();
    tower::layer_norm(b, "layer_norm2", width, eps);
    mlp();
    for (const ValueSpec* spec : {&layer_input, &attention_norm_output, &layer_mid, &mlp_norm_output, &mlp_input,
                                  &layer_output, &attention_queries, &attention_keys, &attention_values,
                                  &attention_scores, &attention_premix, &attention_output, &attention_probabilities,
                                  &attention_head_outputs, &mlp_activation, &mlp_neurons, &mlp_output})
      b.not_in_this_run(*spec);
    b.end_vision_layer();
  }

  /// Attention pooling over the patches, which no Gemma reads.
  void pooling_head() {
    auto scope = b.module("head", "SiglipMultiheadAttentionPoolingHead", {"attention", "layernorm", "mlp"});
    b.parameter("probe", {1, 1, width}, "");
    {
      auto attention = b.module("attention", "MultiheadAttention");
      b.parameter("in_proj_weight", {3 * width, width}, "");
      b.parameter("in_proj_bias", {3 * width}, "");
      auto out = b.module("out_proj", "NonDynamicallyQuantizableLinear");
      out.summary(linear_summary(width, width, true));
      b.parameter("weight", {width, width}, "");
      b.parameter("bias", {width}, "");
    }
    tower::layer_norm(b, "layernorm", width, eps);
    mlp();
  }
};

std::string both(int64_t size) {
  return "(" + std::to_string(size) + ", " + std::to_string(size) + ")";
}

void embeddings(PlanBuilder& b, const Config& c) {
  const int64_t width = c.integer("hidden_size"), channels = c.integer("num_channels"), patch = c.integer("patch_size"),
                side = c.integer("image_size") / patch;
  auto scope = b.module("embeddings", "SiglipVisionEmbeddings");
  tower::conv(b, "patch_embedding", "Conv2d", {width, channels, patch, patch}, true,
              std::to_string(channels) + ", " + std::to_string(width) + ", kernel_size=" + both(patch) +
                  ", stride=" + both(patch) + ", padding=valid");
  tower::embedding(b, "position_embedding", side * side, width);
}

void sizes(PlanBuilder& b, const Config& c, int64_t text_width) {
  Vision& v = b.plan().vision.emplace();
  const int64_t heads = c.integer("num_attention_heads"), width = c.integer("hidden_size"), dim = width / heads;
  v.num_layers = c.integer("num_hidden_layers");
  v.patch_size = c.integer("patch_size");
  v.image_size = c.integer("image_size");
  v.sizes = {text_width, heads, heads, dim, dim, c.integer("intermediate_size"), 0, 0, 0, width};
}

}  // namespace

Config read_siglip_config(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  Config c = read_config(schema(), raw, where, ignore);
  if (c.integer("hidden_size") % c.integer("num_attention_heads"))
    throw BadConfig(where + ": hidden_size (" + std::to_string(c.integer("hidden_size")) +
                    ") is no multiple of num_attention_heads (" + std::to_string(c.integer("num_attention_heads")) +
                    ").");
  if (c.integer("image_size") < c.integer("patch_size"))
    throw BadConfig(where + ": an image of " + std::to_string(c.integer("image_size")) +
                    " pixels (image_size) has no patch of " + std::to_string(c.integer("patch_size")) +
                    " (patch_size).");
  if (c.text("hidden_act") != "gelu_pytorch_tanh")
    throw BadConfig(where + ": hidden_act '" + c.text("hidden_act") + "' is not 'gelu_pytorch_tanh', SigLIP's.");
  return c;
}

void siglip_tower(PlanBuilder& b, const Config& c, int64_t text_width) {
  sizes(b, c, text_width);
  const PlanBuilder::NotRun not_run(b, kNeedsImage);
  Recipe r{b, c.integer("hidden_size"), c.integer("intermediate_size"), c.number("layer_norm_eps")};
  auto scope = b.module("vision_tower", "SiglipVisionModel");
  embeddings(b, c);
  {
    auto encoder = b.module("encoder", "SiglipEncoder");
    auto layers = b.module("layers", "ModuleList");
    for (int i = 0; i < c.integer("num_hidden_layers"); ++i) r.block(i);
  }
  tower::layer_norm(b, "post_layernorm", r.width, r.eps);
  if (c.flag("vision_use_head")) r.pooling_head();
  scope.shows(
      {{"patch_embed", "embeddings.patch_embedding"}, {"layers", "encoder.layers"}, {"norm", "post_layernorm"}});
  for (const ValueSpec* spec :
       {&values::vision::patch_embeddings, &values::vision::tower_output, &values::vision::image_features})
    b.not_in_this_run(*spec);
}

std::vector<std::pair<std::string, std::string>> siglip_prefixes() {
  return {{"model.vision_tower.embeddings.patch_embedding", "vision.patch_embed"},
          {"model.vision_tower.encoder.layers", "vision.layers"},
          {"model.vision_tower.post_layernorm", "vision.norm"},
          {"model.vision_tower", "vision"},
          {"model.multi_modal_projector", "projector"}};
}

}  // namespace v0
}  // namespace gemloupe
