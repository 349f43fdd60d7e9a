// The logit lens: what each block's residual stream would say next, if the model stopped there.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "gemloupe/report/document.h"
#include "gemloupe/run/trace.h"

namespace gemloupe {
inline namespace v0 {

struct LensOptions {
  int top = 5;                  ///< how many tokens of each distribution
  bool every_position = false;  ///< else the last one only
  /// The model's own project_on_vocab.
  std::function<at::Tensor(const at::Tensor&)> project;
  std::function<std::string(int64_t)> token_text;
  std::function<void(int layer)> on_layer;  ///< called before each; may be empty
};

struct Lens {
  struct Guess {
    int64_t id;
    std::string token;
    double probability;
  };
  using Cell = std::vector<Guess>;  ///< best first

  std::vector<int64_t> ids;  ///< the prompt
  std::vector<std::string> tokens;
  int64_t first_position = 0;             ///< the position of cells[…][0]
  std::vector<std::vector<Cell>> layers;  ///< [layer][position]; the last layer is the model's own output
};

/// Runs `trace` (one prompt) through all its layers. Keeps no more than the best tokens of a layer: memory stays small
/// on long prompts. Errors: BadOption, BadPrompt for several prompts.
Lens read_lens(Trace& trace, const LensOptions& options);

/// The last position: a row a layer, its best tokens and their probabilities.
Document lens_table(const Lens& lens);
/// Layers x positions, the best token in each cell.
Document lens_page(const Lens& lens);
json lens_json(const Lens& lens);

}  // namespace v0
}  // namespace gemloupe
