// Gemma 4's audio tower (Gemma4AudioModel), of E2B and E4B: convolutions that thin out the frames, then conformer
// blocks.
//
// Module tree: transformers 5.24.0, models/gemma4/modeling_gemma4.py.
#include "gemloupe/base/errors.h"
#include "gemloupe/family/tower.h"

namespace gemloupe {
inline namespace v0 {
namespace {

const ConfigSchema& schema() {
  static const ConfigSchema schema{"gemma4_audio",
                                   {{"hidden_size", KeyType::Size, 1024},
                                    {"num_hidden_layers", KeyType::Size, 12},
                                    {"num_attention_heads", KeyType::Size, 8},
                                    {"hidden_act", KeyType::Text, "silu"},
                                    {"subsampling_conv_channels", KeyType::Any, json::array({128, 32})},
                                    {"conv_kernel_size", KeyType::Size, 5},
                                    {"residual_weight", KeyType::Number, 0.5},
                                    {"attention_chunk_size", KeyType::Size, 12},
                                    {"attention_context_left", KeyType::Size, 13},
                                    {"attention_context_right", KeyType::Integer, 0},
                                    {"attention_logit_cap", KeyType::Number, 50.0},
                                    {"attention_invalid_logits_value", KeyType::Number, -1e9},
                                    {"use_clipped_linears", KeyType::Flag, true},
                                    {"rms_norm_eps", KeyType::Number, 1e-6},
                                    {"gradient_clipping", KeyType::Number, 1e10},
                                    {"output_proj_dims", KeyType::Size, 1536},
                                    {"initializer_range", KeyType::Number, 0.02}},
                                   {}};
  return schema;
}

constexpr const char* kNorm = "Gemma4RMSNorm";

struct Recipe {
  PlanBuilder& b;
  const Config& c;
  int64_t width;

  void linear(const char* name, int64_t in, int64_t out) {
    gemma4_clippable_linear(b, name, in, out, c.flag("use_clipped_linears"));
  }
  void norm(const char* name) { tower::rms_norm(b, name, kNorm, width); }

  /// A convolution of stride 2 over frames and frequencies.
  void subsampling(const char* name, int64_t in, int64_t out) {
    auto scope = b.module(name, "Gemma4AudioSubSampleConvProjectionLayer");
    tower::conv(b, "conv", "Conv2d", {out, in, 3, 3}, false,
                std::to_string(in) + ", " + std::to_string(out) +
                    ", kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), bias=False");
    tower::layer_norm(b, "norm", out, c.number("rms_norm_eps"), /*bias=*/false);
    tower::leaf(b, "act", "ReLU");
  }

  void subsample_conv_projection() {
    const json& channels = c.attributes()["subsampling_conv_channels"];
    const int64_t first = channels[0].get<int64_t>(), second = channels[1].get<int64_t>();
    auto scope = b.module("subsample_conv_projection", "Gemma4AudioSubSampleConvProjection");
    subsampling("layer0", 1, first);
    subsampling("layer1", first, second);
    tower::linear(b, "input_proj_linear", first / 4 * second, width, false);
  }

  void feed_forward(const char* name) {
    auto scope = b.module(name, "Gemma4AudioFeedForward");
    linear("ffw_layer_1", width, 4 * width);
    linear("ffw_layer_2", 4 * width, width);
    norm("pre_layer_norm");
    norm("post_layer_norm");
    tower::leaf(b, "act_fn", "SiLUActivation");
  }

  void attention() {
    const int64_t dim = width / c.integer("num_attention_heads");
    auto scope = b.module("self_attn", "Gemma4AudioAttention");
    b.parameter("per_dim_scale", {dim}, "");
    for (const char* name : {"q_proj", "k_proj", "v_proj", "post"}) linear(name, width, width);
    tower::linear(b, "relative_k_proj", width, width, false);
  }

  void light_conv() {
    const int64_t kernel = c.integer("conv_kernel_size");
    const std::string channels = std::to_string(width);
    auto scope = b.module("lconv1d", "Gemma4AudioLightConv1d");
    linear("linear_start", width, 2 * width);
    linear("linear_end", width, width);
    tower::conv(b, "depthwise_conv1d", "Gemma4AudioCausalConv1d", {width, 1, kernel}, false,
                channels + ", " + channels + ", kernel_size=(" + std::to_string(kernel) +
                    ",), stride=(1,), groups=" + channels + ", bias=False");
    norm("pre_layer_norm");
    norm("conv_norm");
    tower::leaf(b, "act_fn", "SiLUActivation");
  }

  void block(int index) {
    auto scope = b.module(std::to_string(index), "Gemma4AudioLayer");
    feed_forward("feed_forward1");
    feed_forward("feed_forward2");
    attention();
    light_conv();
    norm("norm_pre_attn");
    norm("norm_post_attn");
    norm("norm_out");
  }
};

}  // namespace

Config read_gemma4_audio_config(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  Config c = read_config(schema(), raw, where, ignore);
  const json& channels = c.attributes()["subsampling_conv_channels"];
  auto is_size = [](const json& n) {
    return n.is_number_integer() && n.get<int64_t>() > 0 && n.get<int64_t>() < 1 << 20;
  };
  if (!channels.is_array() || channels.size() != 2 || !is_size(channels[0]) || !is_size(channels[1]) ||
      channels[0].get<int64_t>() < 4)
    throw BadConfig(where + ": subsampling_conv_channels must be two sizes, the first from 4, but it is " +
                    channels.dump().substr(0, 80) + ".");
  if (c.integer("hidden_size") % c.integer("num_attention_heads"))
    throw BadConfig(where + ": hidden_size (" + std::to_string(c.integer("hidden_size")) +
                    ") is no multiple of num_attention_heads (" + std::to_string(c.integer("num_attention_heads")) +
                    ").");
  if (c.text("hidden_act") != "silu")
    throw BadConfig(where + ": hidden_act '" + c.text("hidden_act") + "' is not 'silu', Gemma 4's.");
  return c;
}

void gemma4_audio_tower(PlanBuilder& b, const Config& c) {
  const PlanBuilder::NotRun not_run(b, kNeedsSound);
  Recipe r{b, c, c.integer("hidden_size")};
  auto scope = b.module("audio_tower", "Gemma4AudioModel");
  r.subsample_conv_projection();
  tower::leaf(b, "rel_pos_enc", "Gemma4AudioRelPositionalEncoding");
  {
    auto layers = b.module("layers", "ModuleList");
    for (int i = 0; i < c.integer("num_hidden_layers"); ++i) r.block(i);
  }
  tower::linear(b, "output_proj", r.width, c.integer("output_proj_dims"), true);
}

}  // namespace v0
}  // namespace gemloupe
