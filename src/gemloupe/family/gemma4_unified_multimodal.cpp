// Gemma 4 12B (Gemma4UnifiedForConditionalGeneration): no towers; patches and sounds are projected straight into the
// text model. The embedder of patches is `vision`, its last part `projector`.
//
// Module tree: transformers 5.24.0, models/gemma4_unified/modeling_gemma4_unified.py.
#include "gemloupe/base/errors.h"
#include "gemloupe/family/gemma4_multimodal.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// Other names of one size, which a file may repeat.
void check_same(const Config& c, const std::string& where, const std::vector<std::string>& keys, int64_t size) {
  for (const std::string& key : keys)
    if (const json given = c.attributes().value(key, json()); !given.is_null() && given != size)
      throw BadConfig(where + ": " + key + " is " + given.dump() + ", but the other keys make it " +
                      std::to_string(size) + ".");
}

Config read_vision(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  static const ConfigSchema schema{"gemma4_unified_vision",
                                   {{"patch_size", KeyType::Size, 16},
                                    {"pooling_kernel_size", KeyType::Size, 3},
                                    {"mm_embed_dim", KeyType::Size, 3840},
                                    {"mm_posemb_size", KeyType::Size, 1120},
                                    {"rms_norm_eps", KeyType::Number, 1e-6},
                                    {"output_proj_dims", KeyType::Size, 3840},
                                    {"initializer_range", KeyType::Number, 0.02}},
                                   {},
                                   {"model_patch_size", "num_soft_tokens"}};
  Config c = read_config(schema, raw, where, ignore);
  const int64_t side = c.integer("patch_size") * c.integer("pooling_kernel_size");
  check_same(c, where, {"model_patch_size"}, side);
  c.attributes()["model_patch_size"] = side;
  return c;
}

Config read_audio(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  static const std::vector<std::string> other_names{"hidden_size", "output_proj_dims", "audio_samples_per_token"};
  static const ConfigSchema schema{"gemma4_unified_audio",
                                   {{"audio_embed_dim", KeyType::Size, 640},
                                    {"rms_norm_eps", KeyType::Number, 1e-6},
                                    {"initializer_range", KeyType::Number, 0.02}},
                                   {},
                                   other_names};
  Config c = read_config(schema, raw, where, ignore);
  check_same(c, where, other_names, c.integer("audio_embed_dim"));
  for (const std::string& name : other_names) c.attributes()[name] = c.integer("audio_embed_dim");
  return c;
}

const std::vector<ConfigPart> kParts{{"text_config", {"gemma4_unified_text"}},
                                     {"vision_config", {"gemma4_unified_vision"}, /*optional=*/true, {}, read_vision},
                                     {"audio_config", {"gemma4_unified_audio"}, /*optional=*/true, {}, read_audio}};

Config read(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  static const ConfigSchema schema = gemma4_wrapper_schema("gemma4_unified");
  return read_wrapper_config(schema, kParts, raw, where, ignore);
}

void embed_vision(PlanBuilder& b, const Config& c, int64_t text_width) {
  constexpr double kEps = 1e-5;  // torch's own: the config's is the RMS norm's
  const int64_t side = c.integer("model_patch_size"), pixels = 3 * side * side, width = c.integer("mm_embed_dim");
  Vision& v = b.plan().vision.emplace();
  v.patch_size = side;
  v.image_size = "varies";
  v.sizes.hidden_size = text_width;
  v.sizes.vision_hidden_size = width;
  const PlanBuilder::NotRun not_run(b, kNeedsImage);
  auto scope = b.module("embed_vision", "Gemma4UnifiedVisionEmbedder");
  tower::layer_norm(b, "patch_ln1", pixels, kEps);
  tower::linear(b, "patch_dense", pixels, width, true);
  tower::layer_norm(b, "patch_ln2", width, kEps);
  b.parameter("pos_embedding", {c.integer("mm_posemb_size"), 2, width}, "");
  tower::layer_norm(b, "pos_norm", width, kEps);
  gemma4_embedder(b, "multimodal_embedder", "Gemma4Unified", c.integer("output_proj_dims"), text_width);
  scope.shows({{"patch_ln1", "patch_ln1"},
               {"patch_ln2", "patch_ln2"},
               {"pos_norm", "pos_norm"},
               {"patch_embed", "patch_dense"}});
  b.not_in_this_run(values::vision::patch_embeddings);
  b.absent(values::vision::tower_output, "patches are projected without a tower");
  b.not_in_this_run(values::vision::image_features);
}

void before_text(PlanBuilder& b) {
  const int64_t text_width = b.config().integer("hidden_size");
  const Config vision = part_of(b.plan().config, "vision_config"), audio = part_of(b.plan().config, "audio_config");
  if (!vision.attributes().empty()) embed_vision(b, vision, text_width);
  if (!audio.attributes().empty()) {
    const PlanBuilder::NotRun not_run(b, kNeedsSound);
    gemma4_embedder(b, "embed_audio", "Gemma4Unified", audio.integer("output_proj_dims"), text_width);
  }
  gemma4_image_token_mask(b);
}

void about(PlanBuilder& b) {
  auto& spellings = b.plan().spellings;
  spellings.emplace_back("model.embed_vision.multimodal_embedder.", "model.embed_vision.");
  spellings.emplace_back("model.embed_vision.", "model.vision_embedder.");
  gemma4_wrapper_notes(b);
}

const WrapperRecipe kRecipe{"Gemma4UnifiedForConditionalGeneration",
                            "Gemma4UnifiedModel",
                            {"language_model", "embed_vision", "embed_audio"},
                            {{"model.embed_vision.patch_dense", "vision.patch_embed"},
                             {"model.embed_vision.multimodal_embedder", "projector"},
                             {"model.embed_vision", "vision"}},
                            before_text,
                            gemma4_text_ids,
                            /*capped=*/true,
                            about};

}  // namespace

extern const Family gemma4_unified_multimodal_family;
const Family gemma4_unified_multimodal_family{
    "gemma4_unified", "Gemma4UnifiedForConditionalGeneration", "", read,
    [](const Config& config, const RecipeOptions& options) { return wrapper_plan(kRecipe, config, options); }};

}  // namespace v0
}  // namespace gemloupe
