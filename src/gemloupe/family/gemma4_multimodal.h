// What gemma4 and gemma4_unified share around their text models.
#pragma once

#include "gemloupe/family/wrapper.h"

namespace gemloupe {
inline namespace v0 {

/// Ids of images, videos and sounds; the rest of the root's keys.
ConfigSchema gemma4_wrapper_schema(const std::string& model_type);

/// Both look-ups see padding where an image, a video or a sound will stand.
Slot gemma4_text_ids(PlanBuilder& b);

/// The mask of image tokens, where the checkpoint takes images.
void gemma4_image_token_mask(PlanBuilder& b);

void gemma4_wrapper_notes(PlanBuilder& b);

}  // namespace v0
}  // namespace gemloupe
