// Gemma 3 with images (Gemma3ForConditionalGeneration): SigLIP's tower, an average pool and a projection beside Gemma
// 3's text model.
//
// Module tree: transformers 5.24.0, models/gemma3/modeling_gemma3.py.
#include <cmath>

#include "gemloupe/base/errors.h"
#include "gemloupe/family/wrapper.h"

namespace gemloupe {
inline namespace v0 {
namespace {

const std::vector<ConfigPart> kParts{{"text_config", {"gemma3_text"}},
                                     {"vision_config", {"siglip_vision_model"}, false, {}, read_siglip_config}};

const ConfigSchema& schema() {
  static const ConfigSchema schema{"gemma3",
                                   {{"mm_tokens_per_image", KeyType::Size, 256},
                                    {"boi_token_index", KeyType::Integer, 255999, true},
                                    {"eoi_token_index", KeyType::Integer, 256000, true},
                                    {"image_token_index", KeyType::Integer, 262144, true},
                                    {"initializer_range", KeyType::Number, 0.02, true},
                                    {"tie_word_embeddings", KeyType::Flag, true, true}},
                                   {},
                                   {"eos_token_id", "bos_token_id", "pad_token_id"}};
  return schema;
}

/// Patches of a side that the pool makes one token of.
int64_t pool_size(const Config& c, const Config& vision) {
  const int64_t side = vision.integer("image_size") / vision.integer("patch_size");
  return side / static_cast<int64_t>(std::sqrt(static_cast<double>(c.integer("mm_tokens_per_image"))));
}

Config read(const json& raw, const std::string& where, const std::vector<std::string>& ignore) {
  Config c = read_wrapper_config(schema(), kParts, raw, where, ignore);
  if (pool_size(c, part_of(c, "vision_config")) < 1)
    throw BadConfig(where + ": mm_tokens_per_image (" + std::to_string(c.integer("mm_tokens_per_image")) +
                    ") is more than vision_config's image_size and patch_size give.");
  return c;
}

void before_text(PlanBuilder& b) {
  const Config &c = b.plan().config, vision = part_of(c, "vision_config");
  const int64_t text_width = b.config().integer("hidden_size"), width = vision.integer("hidden_size");
  siglip_tower(b, vision, text_width);
  const std::string pool = std::to_string(pool_size(c, vision)), eps = json(vision.number("layer_norm_eps")).dump();
  {
    const PlanBuilder::NotRun not_run(b, kNeedsImage);
    auto projector = b.module("multi_modal_projector", "Gemma3MultiModalProjector");
    b.parameter("mm_input_projection_weight", {width, text_width}, "");
    tower::rms_norm(b, "mm_soft_emb_norm", "Gemma3RMSNorm", width, "(" + std::to_string(width) + ",), eps=" + eps);
    tower::leaf(b, "avg_pool", "AvgPool2d", "kernel_size=" + pool + ", stride=" + pool + ", padding=0");
  }
  image_token_mask(b, c.optional_integer("image_token_index").value_or(-1));
}

void about(PlanBuilder& b) {
  b.note("The logits are not softcapped",
         "Whatever the text config says: the multimodal class applies no cap. Load with "
         "final_logit_softcapping=\"config\" "
         "for one.");
  b.note("A text prompt runs the text model alone",
         "The vision tower (vision) and the projector (projector) have parameters and shapes here, and no values.");
}

const WrapperRecipe kRecipe{"Gemma3ForConditionalGeneration",
                            "Gemma3Model",
                            {"vision_tower", "multi_modal_projector", "language_model"},
                            siglip_prefixes(),
                            before_text,
                            nullptr,
                            /*capped=*/false,
                            about};

}  // namespace

extern const Family gemma3_multimodal_family;
const Family gemma3_multimodal_family{
    "gemma3", "Gemma3ForConditionalGeneration", "", read,
    [](const Config& config, const RecipeOptions& options) { return wrapper_plan(kRecipe, config, options); }};

}  // namespace v0
}  // namespace gemloupe
