// Tokens that are found in a text as they are written, before any merging: <bos>, <start_of_turn>, runs of newlines.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gemloupe/text/normalizer.h"

namespace gemloupe {
inline namespace v0 {

struct AddedToken {
  int64_t id = -1;
  std::string content;
  bool special = false;     ///< left out by decode(…, skip_special_tokens)
  bool normalized = false;  ///< looked for in the text after normalisation, and normalised itself
  bool lstrip = false;      ///< takes the white space on its left along
  bool rstrip = false;      ///< … and on its right
};

/// A piece of a text: an added token, or text between two of them.
struct Piece {
  size_t begin, end;
  const AddedToken* token = nullptr;
};

/// All added tokens of a model. They are found leftmost first, of those that begin there the longest.
class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  std::vector<Piece> split_raw(std::string_view text) const { return raw_.split(text, tokens_); }
  std::vector<Piece> split_normalized(std::string_view text) const { return normalized_.split(text, tokens_); }

  const AddedToken* find(std::string_view content) const;
  const AddedToken* find(int64_t id) const;
  const std::vector<AddedToken>& all() const { return tokens_; }  ///< in the order of their ids

 private:
  struct Pattern {
    std::string text;
    size_t token;
  };

  /// Patterns in order, with the range of those that begin with each byte: a search narrows the range byte by byte.
  class Matcher {
   public:
    Matcher() = default;
    explicit Matcher(std::vector<Pattern> patterns);
    std::vector<Piece> split(std::string_view text, const std::vector<AddedToken>& tokens) const;

   private:
    const Pattern* longest_at(std::string_view text, size_t at) const;
    std::vector<Pattern> patterns_;
    std::array<size_t, 257> begin_of_byte_{};
  };

  std::vector<AddedToken> tokens_;
  std::vector<size_t> by_content_;
  Matcher raw_, normalized_;
};

}  // namespace v0
}  // namespace gemloupe
