// PaliGemma 1 and 2 (PaliGemmaForConditionalGeneration): SigLIP's tower and a projection beside Gemma 1's or Gemma 2's
// text model. Positions count from 1.
//
// Module tree: transformers 5.24.0, models/paligemma/modeling_paligemma.py.
#include "gemloupe/family/wrapper.h"

namespace gemloupe {
inline namespace v0 {
namespace {

const std::vector<ConfigPart> kParts{{"text_config", {"gemma", "gemma2"}, false, {"num_image_tokens"}},
                                     {"vision_config",
                                      {"siglip_vision_model"},
                                      false,
                                      {"num_image_tokens", "projection_dim", "projector_hidden_act"},
                                      read_siglip_config}};

const ConfigSchema& schema() {
  static const ConfigSchema schema{
      "paligemma",
      {{"image_token_index", KeyType::Integer, 256000},
       {"vocab_size", KeyType::Size, 257152},
       {"projection_dim", KeyType::Size, 2048},
       {"hidden_size", KeyType::Size, 2048},
       {"tie_word_embeddings", KeyType::Flag, true}},
      {},
      {"ignore_index", "pad_token_id", "bos_token_id", "eos_token_id", "num_hidden_layers", "vision_feature_layer"}};
  return schema;
}

Config read(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  Config c = read_wrapper_config(schema(), kParts, raw, where, ignore);
  json &text = c.attributes()["text_config"], &vision = c.attributes()["vision_config"];
  // As the reference says it; what is causal here is a prompt without an image, or with a suffix.
  if (text["use_bidirectional_attention"].is_null()) text["use_bidirectional_attention"] = true;
  const int64_t side = vision["image_size"].get<int64_t>() / vision["patch_size"].get<int64_t>();
  text["num_image_tokens"] = side * side;
  vision["projection_dim"] = c.integer("projection_dim");
  return c;
}

void before_text(PlanBuilder& b) {
  const Config &c = b.plan().config, vision = part_of(c, "vision_config");
  b.plan().first_position = 1;
  siglip_tower(b, vision, b.config().integer("hidden_size"));
  {
    const PlanBuilder::NotRun not_run(b, kNeedsImage);
    auto projector = b.module("multi_modal_projector", "PaliGemmaMultiModalProjector");
    tower::linear(b, "linear", vision.integer("hidden_size"), vision.integer("projection_dim"), true);
  }
  image_token_mask(b, c.integer("image_token_index"));
}

void about(PlanBuilder& b) {
  b.note("The logits are not softcapped",
         "logits is lm_head's output, on PaliGemma 2 too, whose text config sets final_logit_softcapping to 30. "
         "transformers 5.24 applies it: load with final_logit_softcapping=\"config\" for that.");
  b.note("A text prompt is causal, and its positions count from 1",
         "A text token sits one rotary step later than in the text model alone.");
}

const WrapperRecipe kRecipe{"PaliGemmaForConditionalGeneration",
                            "PaliGemmaModel",
                            {"vision_tower", "multi_modal_projector", "language_model"},
                            siglip_prefixes(),
                            before_text,
                            nullptr,
                            /*capped=*/false,
                            about};

}  // namespace

extern const Family paligemma_family;
const Family paligemma_family{
    "paligemma", "PaliGemmaForConditionalGeneration", "", read,
    [](const Config& config, const RecipeOptions& options) { return wrapper_plan(kRecipe, config, options); }};

}  // namespace v0
}  // namespace gemloupe
