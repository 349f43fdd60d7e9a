// The axes of a value by name, as the pages print them, and their sizes in one run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gemloupe {
inline namespace v0 {

enum class Axis : uint8_t {
  batch,
  seq,
  query,
  key,
  hidden_size,
  num_heads,
  num_kv_heads,
  head_dim,
  qk_head_dim,
  intermediate_size,
  vocab_size,
  num_experts,
  top_k,
  images,
  patches,
  vision_hidden_size,
  image_tokens,
};

std::string_view name_of(Axis axis);

/// "[batch seq hidden_size]"
std::string axes_text(const std::vector<Axis>& axes);

/// "batch 2, seq 5, hidden_size 48": a shape with its axes' names, for messages.
std::string named_shape_text(const std::vector<Axis>& axes, const std::vector<int64_t>& shape);

}  // namespace v0
}  // namespace gemloupe
