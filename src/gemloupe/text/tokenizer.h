// Text to token ids and back, as the checkpoint's own tokenizer does it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gemloupe/store/checkpoint.h"
#include "gemloupe/text/added_tokens.h"
#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {

struct TokenizerParts;

struct Encoding {
  std::vector<int64_t> ids;
  /// For each id the bytes of the text that it stands for, [begin, end); (0, 0) for an id that was added to the text.
  /// code_point_ranges() turns them into indices of Python strings.
  std::vector<Range> offsets;
};

struct SpecialIds {
  std::optional<int64_t> bos, eos, padding, unknown;
};

/// Immutable, cheap to copy, safe to use from many threads.
class Tokenizer {
 public:
  /// From tokenizer.json, else tokenizer.model, else the GGUF's vocabulary. Errors: NotFound where there is none of
  /// them, BadTokenizer for a file that is broken or has a component that is not implemented, which is named.
  static Tokenizer load(const TokenizerFiles& files);

  /// Special tokens that stand in the text are recognised. `add_special_tokens` puts those around it that the
  /// checkpoint asks for, <bos> for Gemma; a text that begins with <bos> keeps that one and gets no second. Bytes that
  /// are not UTF-8 read as U+FFFD, as Python's errors="replace" has it.
  Encoding encode(std::string_view text, bool add_special_tokens = true) const;

  /// Ids that no token has are left out. Byte tokens that do not make UTF-8 together become U+FFFD, one for each.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = false) const;

  std::optional<std::string> id_to_token(int64_t id) const;
  std::optional<int64_t> token_to_id(std::string_view token) const;

  size_t size() const;     ///< how many tokens, added ones included
  int64_t end_id() const;  ///< one past the largest id

  const SpecialIds& special() const;
  bool is_special(int64_t id) const;

  /// All added tokens, special ones or not, by id.
  const std::vector<AddedToken>& added_tokens() const;

  /// What encode(…, true) puts before and after a text.
  const std::vector<int64_t>& prefix() const;
  const std::vector<int64_t>& suffix() const;

 private:
  friend class TokenStream;
  explicit Tokenizer(TokenizerParts parts);
  std::optional<std::string_view> text_of(int64_t id, bool skip_special_tokens) const;

  std::shared_ptr<const TokenizerParts> parts_;
};

/// Decodes ids one by one, for generation. Holds back the bytes of a character that is not complete yet; a character is
/// handed out as soon as it is, so bytes that turn out to be broken later do not take it back, as decode() would.
class TokenStream {
 public:
  explicit TokenStream(Tokenizer tokenizer, bool skip_special_tokens = false)
      : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

  std::string push(int64_t id);
  std::string finish();  ///< what is held back

 private:
  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  bool at_start_ = true;
  std::vector<std::string> held_;
};

}  // namespace v0
}  // namespace gemloupe
