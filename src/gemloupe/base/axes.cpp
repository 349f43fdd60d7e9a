#include "gemloupe/base/axes.h"

#include <array>

#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {
namespace {
constexpr std::array<std::string_view, 17> kNames{"batch",        "seq",
                                                  "query",        "key",
                                                  "hidden_size",  "num_heads",
                                                  "num_kv_heads", "head_dim",
                                                  "qk_head_dim",  "intermediate_size",
                                                  "vocab_size",   "num_experts",
                                                  "top_k",        "images",
                                                  "patches",      "vision_hidden_size",
                                                  "image_tokens"};
}  // namespace

std::string_view name_of(Axis axis) {
  return kNames[static_cast<size_t>(axis)];
}

std::string axes_text(const std::vector<Axis>& axes) {
  std::vector<std::string> names;
  for (Axis axis : axes) names.emplace_back(name_of(axis));
  return "[" + join(names, " ") + "]";
}

std::string named_shape_text(const std::vector<Axis>& axes, const std::vector<int64_t>& shape) {
  if (axes.size() != shape.size()) return shape_text(shape);
  std::vector<std::string> parts;
  for (size_t i = 0; i < axes.size(); ++i)
    parts.push_back(std::string(name_of(axes[i])) + " " + std::to_string(shape[i]));
  return shape_text(shape) + " (" + join(parts, ", ") + ")";
}

}  // namespace v0
}  // namespace gemloupe
