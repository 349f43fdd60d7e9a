// What is done to a text before it is cut into tokens, with a way back to the bytes it came from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gemloupe {
inline namespace v0 {

/// A normalised text, and for each of its bytes the bytes of the original character that it came from.
struct NormalizedText {
  std::string text;
  std::vector<std::pair<uint32_t, uint32_t>> origin;
};

class Normalizer {
 public:
  void add_replace(std::string pattern, std::string content);
  void add_prepend(std::string content);

  /// `text` lies at `offset` in the original.
  NormalizedText apply(std::string_view text, size_t offset = 0) const;

  /// Whether no normalised text has `pattern` in it.
  bool removes(std::string_view pattern) const;

  bool operator==(const Normalizer&) const = default;

 private:
  struct Step {
    bool prepend;
    std::string pattern, content;
    bool operator==(const Step&) const = default;
  };
  std::vector<Step> steps_;
};

}  // namespace v0
}  // namespace gemloupe
