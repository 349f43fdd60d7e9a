#include "gemloupe/text/added_tokens.h"

#include <algorithm>
#include <numeric>

#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  by_content_.resize(tokens_.size());
  std::iota(by_content_.begin(), by_content_.end(), size_t{0});
  std::sort(by_content_.begin(), by_content_.end(),
            [&](size_t a, size_t b) { return tokens_[a].content < tokens_[b].content; });
  std::vector<Pattern> raw, normalized;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    Pattern pattern{tokens_[i].normalized ? normalizer.apply(content).text : content, i};
    if (!pattern.text.empty()) (tokens_[i].normalized ? normalized : raw).push_back(std::move(pattern));
  }
  raw_ = Matcher(std::move(raw));
  normalized_ = Matcher(std::move(normalized));
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto at = std::lower_bound(by_content_.begin(), by_content_.end(), content,
                                   [&](size_t i, std::string_view text) { return tokens_[i].content < text; });
  return at != by_content_.end() && tokens_[*at].content == content ? &tokens_[*at] : nullptr;
}

const AddedToken* AddedTokens::find(int64_t id) const {
  const auto at = std::lower_bound(tokens_.begin(), tokens_.end(), id,
                                   [](const AddedToken& token, int64_t wanted) { return token.id < wanted; });
  return at != tokens_.end() && at->id == id ? &*at : nullptr;
}

AddedTokens::Matcher::Matcher(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {
  std::stable_sort(patterns_.begin(), patterns_.end(), [](const auto& a, const auto& b) { return a.text < b.text; });
  const auto same = [](const auto& a, const auto& b) { return a.text == b.text; };  // once normalised, say
  patterns_.erase(std::unique(patterns_.begin(), patterns_.end(), same), patterns_.end());
  for (const Pattern& pattern : patterns_) ++begin_of_byte_[static_cast<uint8_t>(pattern.text[0]) + 1];
  std::partial_sum(begin_of_byte_.begin(), begin_of_byte_.end(), begin_of_byte_.begin());
}

const AddedTokens::Pattern* AddedTokens::Matcher::longest_at(std::string_view text, size_t at) const {
  const uint8_t first = static_cast<uint8_t>(text[at]);
  auto begin = patterns_.begin() + begin_of_byte_[first], end = patterns_.begin() + begin_of_byte_[first + 1];
  const Pattern* longest = nullptr;
  for (size_t depth = 1; begin != end; ++depth) {
    // All of [begin, end) agree with the text in their first `depth` bytes; one that has no more comes first.
    if (begin->text.size() == depth) longest = &*begin++;
    if (at + depth >= text.size()) break;
    const uint8_t byte = static_cast<uint8_t>(text[at + depth]);
    begin =
        std::partition_point(begin, end, [&](const Pattern& p) { return static_cast<uint8_t>(p.text[depth]) < byte; });
    end =
        std::partition_point(begin, end, [&](const Pattern& p) { return static_cast<uint8_t>(p.text[depth]) == byte; });
  }
  return longest;
}

std::vector<Piece> AddedTokens::Matcher::split(std::string_view text, const std::vector<AddedToken>& tokens) const {
  std::vector<Piece> pieces;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Pattern* pattern = longest_at(text, at);
    if (pattern == nullptr) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens[pattern->token];
    size_t begin = at, end = at + pattern->text.size();
    at = end;
    if (token.lstrip) begin = std::max(begin - trailing_space(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_space(text.substr(end));
    if (done < begin) pieces.push_back({done, begin});
    pieces.push_back({begin, end, &token});
    done = end;
  }
  if (done < text.size()) pieces.push_back({done, text.size()});
  return pieces;
}

}  // namespace v0
}  // namespace gemloupe
