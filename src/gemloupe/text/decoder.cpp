#include "gemloupe/text/decoder.h"

#include <algorithm>
#include <charconv>

#include "gemloupe/store/printable.h"
#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {

namespace {

using Tokens = std::vector<std::string>;

void replace_all(std::string& text, const std::string& pattern, const std::string& content) {
  size_t at = text.find(pattern), done = 0;
  if (at == text.npos) return;
  std::string result;
  for (; at != text.npos; done = at + pattern.size(), at = text.find(pattern, done)) {
    result.append(text, done, at - done).append(content);
  }
  text = result.append(text, done);
}

Tokens bytes_joined(Tokens tokens) {
  Tokens result;
  std::string bytes;
  auto flush = [&] {
    if (is_utf8(bytes)) {
      if (!bytes.empty()) result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), std::string(replacement_character));
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const int byte = byte_of_token(token); byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
    } else {
      flush();
      result.push_back(std::move(token));
    }
  }
  flush();
  return result;
}

Tokens fused(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return {text};
}

void strip(std::string& token, const std::string& character, size_t most) {
  size_t cut = 0;
  for (; most > 0 && token.compare(cut, character.size(), character) == 0; --most) cut += character.size();
  token.erase(0, cut);
}

}  // namespace

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  int byte = -1;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 ? byte : -1;
}

void Decoder::add_replace(std::string pattern, std::string content) {
  steps_.push_back({Step::Replace, std::move(pattern), std::move(content)});
}
void Decoder::add_byte_fallback() {
  steps_.push_back({Step::ByteFallback, {}, {}});
}
void Decoder::add_fuse() {
  steps_.push_back({Step::Fuse, {}, {}});
}
void Decoder::add_strip(char32_t character, size_t most) {
  std::string pattern;
  append_utf8(pattern, character);
  steps_.push_back({Step::Strip, std::move(pattern), {}, most});
}

bool Decoder::has_byte_fallback() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.kind == Step::ByteFallback; });
}

std::string Decoder::decode(Tokens tokens, bool at_start) const {
  bool is_fused = false;
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Step::Replace:
        for (std::string& token : tokens) replace_all(token, step.pattern, step.content);
        break;
      case Step::ByteFallback:
        tokens = bytes_joined(std::move(tokens));
        break;
      case Step::Fuse:
        tokens = fused(tokens);
        is_fused = true;
        break;
      case Step::Strip:
        if (is_fused && !at_start) break;
        for (std::string& token : tokens) strip(token, step.pattern, step.most);
        break;
    }
  }
  return fused(tokens).front();
}

}  // namespace v0
}  // namespace gemloupe
