// From tokens back to text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gemloupe {
inline namespace v0 {

/// The byte that a token such as <0x0A> stands for; -1 for any other token.
int byte_of_token(std::string_view token);

/// A chain of steps over the list of a text's tokens, as tokenizer.json's "decoder" names them.
class Decoder {
 public:
  void add_replace(std::string pattern, std::string content);
  void add_byte_fallback();  ///< runs of byte tokens become text: U+FFFD for each byte where the run is not UTF-8
  void add_fuse();           ///< all tokens become one
  void add_strip(char32_t character, size_t most);  ///< removes up to `most` of a character from each token's beginning

  /// `at_start`: these are the first tokens of the text, of which more may follow.
  std::string decode(std::vector<std::string> tokens, bool at_start = true) const;

  bool has_byte_fallback() const;

  bool operator==(const Decoder&) const = default;

 private:
  struct Step {
    enum Kind { Replace, ByteFallback, Fuse, Strip } kind;
    std::string pattern, content;
    size_t most = 0;
    bool operator==(const Step&) const = default;
  };
  std::vector<Step> steps_;
};

}  // namespace v0
}  // namespace gemloupe
