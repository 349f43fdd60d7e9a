// Plain parameters of operations, without a tensor in sight: what a plan stores and an operation takes.
#pragma once

#include <cstdint>
#include <optional>

namespace gemloupe {
inline namespace v0 {

/// How a norm's weight scales the normed input.
enum class Gain : uint8_t { OnePlusWeight, Weight, None };

/// Angles per position. `linear_factor` divides the frequencies (rope_type "linear"); 1 leaves them. Of the head's
/// pairs of dimensions the first `turning` turn (rope_type "proportional"), at frequencies spaced over the whole head.
struct RotaryFrequencies {
  int64_t head_dim = 0;
  double theta = 10000.0;
  double linear_factor = 1.0;
  std::optional<int64_t> turning = {};
};

/// Which keys a query may attend to. Positions count over the whole run, cached tokens included.
struct MaskRule {
  std::optional<int64_t> window;  ///< a query sees itself and window - 1 tokens before it
  bool bidirectional = false;     ///< also later tokens (within the window, both ways)
  bool far_end = false;           ///< two ways, also the token `window` away (Gemma 4)
};

}  // namespace v0
}  // namespace gemloupe
