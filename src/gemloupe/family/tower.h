// Words for the modules of vision and audio towers: names, classes, parameters and what print() shows. A text prompt
// runs none of them, so they have no steps.
#pragma once

#include <string>
#include <vector>

#include "gemloupe/plan/builder.h"

namespace gemloupe {
inline namespace v0 {

inline constexpr const char* kNeedsImage = "it needs an image, and the prompt brings none";
inline constexpr const char* kNeedsSound = "it needs a sound, and the prompt brings none";

namespace tower {
void leaf(PlanBuilder& b, const std::string& name, const std::string& class_name, const std::string& summary = "");
void linear(PlanBuilder& b, const std::string& name, int64_t in, int64_t out, bool bias);
void layer_norm(PlanBuilder& b, const std::string& name, int64_t size, double eps, bool bias = true);
/// `size` 0: without a gain.
void rms_norm(PlanBuilder& b, const std::string& name, const std::string& class_name, int64_t size,
              const std::string& summary = "");
/// `weight` is its shape, output channels first.
void conv(PlanBuilder& b, const std::string& name, const std::string& class_name, std::vector<int64_t> weight,
          bool bias, const std::string& summary);
void embedding(PlanBuilder& b, const std::string& name, int64_t rows, int64_t width);
}  // namespace tower

// -------------------------------------------------------------------------------------------------------------- SigLIP

/// Of PaliGemma 1 and 2 and of Gemma 3.
Config read_siglip_config(const json& raw, const std::string& where, const std::vector<std::string>& ignore);
/// `vision_tower`, and what is known of `vision`. `text_width` is that of the image features.
void siglip_tower(PlanBuilder& b, const Config& vision, int64_t text_width);
/// Native paths and what they are called.
std::vector<std::pair<std::string, std::string>> siglip_prefixes();

// ------------------------------------------------------------------------------------------------------------- Gemma 4

Config read_gemma4_vision_config(const json& raw, const std::string& where, const std::vector<std::string>& ignore);
void gemma4_vision_tower(PlanBuilder& b, const Config& vision, int64_t text_width);

Config read_gemma4_audio_config(const json& raw, const std::string& where, const std::vector<std::string>& ignore);
void gemma4_audio_tower(PlanBuilder& b, const Config& audio);

/// A linear module between bounds that the file holds, where the config says so.
void gemma4_clippable_linear(PlanBuilder& b, const std::string& name, int64_t in, int64_t out, bool clipped);
/// embed_vision, embed_audio: a norm without a gain, and a projection. `prefix` is of the class names.
void gemma4_embedder(PlanBuilder& b, const std::string& name, const std::string& prefix, int64_t in, int64_t out);

/// `image_token_mask`, the one value of `vision` that a text prompt has: nothing but false.
void image_token_mask(PlanBuilder& b, int64_t image_id);

}  // namespace v0
}  // namespace gemloupe
