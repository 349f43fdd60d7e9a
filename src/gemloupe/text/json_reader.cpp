#include "gemloupe/text/json_reader.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {

namespace {

/// Characters that stand for themselves inside a string.
constexpr auto plain = [] {
  std::array<bool, 256> table{};
  for (int c = 0x20; c < 256; ++c) table[c] = c != '"' && c != '\\';
  return table;
}();

/// What numbers, true, false and null are made of.
bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '-' || c == '.';
}

bool is_white(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

}  // namespace

JsonReader::JsonReader(std::string_view text, std::string file)
    : text_(text), file_(std::move(file)), at_(text.data()), end_(text.data() + text.size()) {}

void JsonReader::fail(const std::string& expected) const {
  const size_t line = 1 + std::count(text_.data(), at_, '\n');
  const std::string found =
      at_ == end_ ? "the end of the file" : in_quotes(std::string_view(at_, std::min<size_t>(end_ - at_, 24)));
  throw BadTokenizer(file_ + ", line " + std::to_string(line) + ": expected " + expected + ", found " + found);
}

void JsonReader::skip_space() {
  while (at_ < end_ && is_white(*at_)) {
    ++at_;
    // Indentation is most of a tokenizer.json: eight spaces at a time.
    for (; end_ - at_ >= 8 && std::memcmp(at_, "        ", 8) == 0; at_ += 8) {
    }
  }
}

void JsonReader::expect(char c, const char* expected) {
  skip_space();
  if (at_ == end_ || *at_ != c) fail(expected);
  ++at_;
}

void JsonReader::open(char bracket, const char* expected) {
  expect(bracket, expected);
}

bool JsonReader::more(char closing, bool first) {
  skip_space();
  if (at_ < end_ && *at_ == closing) return ++at_, false;
  if (!first) expect(',', closing == '}' ? "',' or '}'" : "',' or ']'");
  return true;
}

std::string_view JsonReader::string(std::string& scratch) {
  expect('"', "a string");
  const char* begin = at_;
  uint8_t bits = 0;
  while (at_ < end_ && plain[static_cast<uint8_t>(*at_)]) bits |= static_cast<uint8_t>(*at_++);
  if (at_ < end_ && *at_ == '"') {
    const std::string_view value(begin, at_++ - begin);
    if (bits >= 0x80 && !is_utf8(value)) at_ = begin, fail("UTF-8");
    return value;
  }
  scratch.assign(begin, at_);
  while (at_ < end_ && *at_ != '"') {
    if (*at_ == '\\') {
      unescape(scratch);
    } else if (plain[static_cast<uint8_t>(*at_)]) {
      scratch.push_back(*at_++);
    } else {
      fail("no control character inside a string");
    }
  }
  if (at_ == end_) fail("'\"' at the end of a string");
  ++at_;
  if (!is_utf8(scratch)) at_ = begin, fail("UTF-8");
  return scratch;
}

std::string JsonReader::string() {
  std::string scratch;
  return std::string(string(scratch));
}

void JsonReader::unescape(std::string& to) {
  static constexpr std::string_view names = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
  if (end_ - at_ < 2) fail("an escape");
  const char kind = at_[1];
  if (const size_t i = names.find(kind); i != names.npos) {
    to.push_back(values[i]);
    at_ += 2;
    return;
  }
  if (kind != 'u') fail("an escape that JSON has");
  char32_t value = hex4();
  if (value >= 0xD800 && value < 0xDC00 && end_ - at_ >= 2 && at_[0] == '\\' && at_[1] == 'u') {
    const char32_t low = hex4();
    if (low < 0xDC00 || low > 0xDFFF) fail("the second half of a surrogate pair");
    value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
  }
  if (value >= 0xD800 && value <= 0xDFFF) fail("no half of a surrogate pair");
  append_utf8(to, value);
}

char32_t JsonReader::hex4() {
  uint32_t value = 0;
  if (end_ - at_ < 6 || std::from_chars(at_ + 2, at_ + 6, value, 16).ptr != at_ + 6) fail("four hexadecimal digits");
  at_ += 6;
  return value;
}

int64_t JsonReader::integer() {
  skip_space();
  int64_t value = 0;
  const auto [after, error] = std::from_chars(at_, end_, value);
  if (error != std::errc() || (after < end_ && (*after == '.' || *after == 'e' || *after == 'E'))) fail("an integer");
  at_ = after;
  return value;
}

bool JsonReader::next_is(char first) {
  skip_space();
  return at_ < end_ && *at_ == first;
}

bool JsonReader::null() {
  if (!next_is('n')) return false;
  if (std::string_view(at_, std::min<size_t>(end_ - at_, 4)) != "null") fail("a value");
  at_ += 4;
  return true;
}

bool JsonReader::boolean() {
  skip_space();
  const std::string_view rest(at_, end_ - at_);
  if (rest.starts_with("true")) return at_ += 4, true;
  if (rest.starts_with("false")) return at_ += 5, false;
  fail("true or false");
}

void JsonReader::skip_string() {
  for (++at_; at_ < end_ && *at_ != '"'; ++at_) {
    if (*at_ == '\\' && ++at_ == end_) break;
  }
  if (at_ == end_) fail("'\"' at the end of a string");
  ++at_;
}

std::string_view JsonReader::skip() {
  skip_space();
  const char* begin = at_;
  size_t depth = 0;
  do {
    skip_space();
    if (at_ == end_) fail("a value");
    if (*at_ == '"') {
      skip_string();
    } else if (*at_ == '{' || *at_ == '[') {
      ++depth, ++at_;
    } else if (depth > 0 && (*at_ == '}' || *at_ == ']')) {
      --depth, ++at_;
    } else if (depth > 0 && (*at_ == ',' || *at_ == ':')) {
      ++at_;
    } else {
      const char* word = at_;
      while (at_ < end_ && is_word(*at_)) ++at_;
      if (at_ == word) fail("a value");
    }
  } while (depth > 0);
  return {begin, static_cast<size_t>(at_ - begin)};
}

json JsonReader::tree() {
  const char* begin = at_;
  json value = json::parse(skip(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) at_ = begin, fail("a JSON value");
  return value;
}

void JsonReader::end() {
  skip_space();
  if (at_ != end_) fail("nothing after the last value");
}

}  // namespace v0
}  // namespace gemloupe
