#include "gemloupe/text/normalizer.h"

#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {

namespace {

NormalizedText replaced(const NormalizedText& from, std::string_view pattern, std::string_view content) {
  NormalizedText to;
  to.text.reserve(from.text.size() * 5 / 4);
  to.origin.reserve(from.text.size() * 5 / 4);
  auto copy = [&](size_t begin, size_t end) {
    to.text.append(from.text, begin, end - begin);
    to.origin.insert(to.origin.end(), from.origin.begin() + begin, from.origin.begin() + end);
  };
  size_t done = 0;
  for (size_t at; (at = from.text.find(pattern, done)) != from.text.npos; done = at + pattern.size()) {
    copy(done, at);
    to.text += content;
    // Like the PyPI package: what is put in belongs to the last character that it stands for.
    to.origin.insert(to.origin.end(), content.size(), from.origin[at + pattern.size() - 1]);
  }
  copy(done, from.text.size());
  return to;
}

}  // namespace

void Normalizer::add_replace(std::string pattern, std::string content) {
  steps_.push_back({false, std::move(pattern), std::move(content)});
}

void Normalizer::add_prepend(std::string content) {
  steps_.push_back({true, {}, std::move(content)});
}

NormalizedText Normalizer::apply(std::string_view text, size_t offset) const {
  NormalizedText result{std::string(text), {}};
  result.origin.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const uint32_t bytes = code_point_at(text, at).bytes, begin = static_cast<uint32_t>(offset + at);
    result.origin.insert(result.origin.end(), bytes, {begin, begin + bytes});
    at += bytes;
  }
  for (const Step& step : steps_) {
    if (!step.prepend) {
      result = replaced(result, step.pattern, step.content);
    } else if (!result.text.empty()) {
      result.text.insert(0, step.content);
      result.origin.insert(result.origin.begin(), step.content.size(), result.origin.front());
    }
  }
  return result;
}

bool Normalizer::removes(std::string_view pattern) const {
  bool removed = false;
  for (const Step& step : steps_) {
    if (step.content.find(pattern) != step.content.npos) {
      removed = false;
    } else if (!step.prepend && step.pattern == pattern && pattern.size() == 1) {
      removed = true;  // and no later step can bring a single byte together out of others
    }
  }
  return removed;
}

}  // namespace v0
}  // namespace gemloupe
