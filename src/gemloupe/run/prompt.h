// A prompt as tensors, checked.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "gemloupe/run/cursor.h"

namespace gemloupe {
inline namespace v0 {

/// What a run is called with. Only `ids` is needed.
struct Prompt {
  at::Tensor ids;                            ///< integers [batch, seq] or [seq]
  std::optional<at::Tensor> attention_mask;  ///< [batch, seq], 0 on padding
  std::optional<at::Tensor> position_ids;    ///< [batch, seq] or [1, seq]
};

/// One prompt, or several padded on the left with `pad`.
Prompt prompt_of(const std::vector<std::vector<int64_t>>& rows, int64_t pad);

/// Copies of the prompt's tensors in the form a pass takes. Positions are the mask's running sum where something is
/// padded, so that a padded row equals its solo run; they begin at `first_position`. Errors: BadPrompt.
PassInputs check_prompt(const Prompt& prompt, int64_t vocab_size, const at::Device& device, int64_t first_position = 0);

}  // namespace v0
}  // namespace gemloupe
