// Gemma 4 with images, and on E2B and E4B sounds (Gemma4ForConditionalGeneration): towers and embedders beside Gemma
// 4's text model.
//
// Module tree: transformers 5.24.0, models/gemma4/modeling_gemma4.py.
#include "gemloupe/family/gemma4_multimodal.h"

#include "gemloupe/family/gemma4.h"

namespace gemloupe {
inline namespace v0 {

ConfigSchema gemma4_wrapper_schema(const std::string& model_type) {
  ConfigSchema schema{
      model_type, {}, {}, {"vision_soft_tokens_per_image", "eos_token_id", "bos_token_id", "pad_token_id"}};
  const std::pair<const char*, int64_t> ids[] = {
      {"boi_token_id", 255999}, {"eoi_token_id", 258882},    {"image_token_id", 258880}, {"video_token_id", 258884},
      {"boa_token_id", 256000}, {"eoa_token_index", 258883}, {"audio_token_id", 258881}};
  for (const auto& [key, id] : ids) schema.keys.push_back({key, KeyType::Integer, id, true});
  schema.keys.push_back({"initializer_range", KeyType::Number, 0.02, true});
  schema.keys.push_back({"tie_word_embeddings", KeyType::Flag, true});
  return schema;
}

Slot gemma4_text_ids(PlanBuilder& b) {
  op::Replace padded{{}, b.config().optional_integer("pad_token_id").value_or(0)};
  for (const char* key : {"image_token_id", "video_token_id", "audio_token_id"})
    if (auto id = b.plan().config.optional_integer(key)) padded.ids.push_back(*id);
  return b.step(std::move(padded), {{b.input_ids(), {}}});
}

void gemma4_image_token_mask(PlanBuilder& b) {
  if (b.plan().vision) image_token_mask(b, b.plan().config.optional_integer("image_token_id").value_or(-1));
}

void gemma4_wrapper_notes(PlanBuilder& b) {
  b.note(
      "A text prompt runs the text model alone",
      "The parts for images and sounds have parameters and shapes here, and no values. The ids of images, videos and "
      "sounds are looked up as padding.");
}

namespace {

const std::vector<ConfigPart> kParts{
    {"text_config", {"gemma4_text"}},
    {"vision_config", {"gemma4_vision"}, /*optional=*/true, {}, read_gemma4_vision_config},
    {"audio_config", {"gemma4_audio"}, /*optional=*/true, {}, read_gemma4_audio_config}};

Config read(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  static const ConfigSchema schema = gemma4_wrapper_schema("gemma4");
  return read_wrapper_config(schema, kParts, raw, where, ignore);
}

void before_text(PlanBuilder& b) {
  const int64_t text_width = b.config().integer("hidden_size");
  const Config vision = part_of(b.plan().config, "vision_config"), audio = part_of(b.plan().config, "audio_config");
  if (!vision.attributes().empty()) {
    gemma4_vision_tower(b, vision, text_width);
    const PlanBuilder::NotRun not_run(b, kNeedsImage);
    gemma4_embedder(b, "embed_vision", "Gemma4", vision.integer("hidden_size"), text_width);
  }
  if (!audio.attributes().empty()) {
    gemma4_audio_tower(b, audio);
    const PlanBuilder::NotRun not_run(b, kNeedsSound);
    gemma4_embedder(b, "embed_audio", "Gemma4", audio.integer("output_proj_dims"), text_width);
  }
  gemma4_image_token_mask(b);
}

void about(PlanBuilder& b) {
  using namespace values::vision;
  auto& moved = b.plan().moved;
  moved.insert(moved.end(),
               {&attention_output, &attention_premix, &mlp_output, &layer_mid, &mlp_norm_output, &tower_output});
  gemma4_wrapper_notes(b);
}

const WrapperRecipe kRecipe{"Gemma4ForConditionalGeneration",
                            "Gemma4Model",
                            {"vision_tower", "language_model", "audio_tower", "embed_vision", "embed_audio"},
                            {{"model.vision_tower.patch_embedder.input_proj", "vision.patch_embed"},
                             {"model.vision_tower.encoder.layers", "vision.layers"},
                             {"model.vision_tower", "vision"},
                             {"model.embed_vision", "projector"}},
                            before_text,
                            gemma4_text_ids,
                            /*capped=*/true,
                            about};

}  // namespace

extern const Family gemma4_multimodal_family;
const Family gemma4_multimodal_family{
    "gemma4", "Gemma4ForConditionalGeneration", "", read,
    [](const Config& config, const RecipeOptions& options) { return wrapper_plan(kRecipe, config, options); }};

}  // namespace v0
}  // namespace gemloupe
