#include "gemloupe/text/jinja/lexer.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "gemloupe/text/jinja/value.h"
#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {
namespace jinja {

namespace {

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  Lexer(std::string_view source, int& line) : line_(line) {
    line_ = 1;
    // One kind of line end, and the last of them does not count.
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
      source_ += source[i] == '\r' ? '\n' : source[i];
    }
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag();
      text(tag);
      if (at_ == source_.size()) break;
      const char kind = source_[at_ + 1];
      if (kind == '#') {
        comment();
      } else if (!raw()) {
        inside(kind == '{');
      }
    }
    add(Token::End, "");
    return std::move(tokens_);
  }

 private:
  bool here(std::string_view what) const { return std::string_view(source_).substr(at_).starts_with(what); }
  void add(Token::Kind kind, std::string value) { tokens_.push_back({kind, std::move(value), line_}); }

  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + to, '\n'));
    at_ = to;
  }

  size_t find_tag() const {
    for (size_t i = source_.find('{', at_); i != source_.npos; i = source_.find('{', i + 1)) {
      if (i + 1 < source_.size() && std::string_view("{%#").find(source_[i + 1]) != std::string_view::npos) return i;
    }
    return source_.size();
  }

  /// The text up to a tag, less the space that the tag takes on its left.
  void text(size_t tag) {
    size_t end = tag;
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (tag < source_.size() && sign == '-') {
      end = at_ + strip(std::string_view(source_).substr(at_, tag - at_), nullptr, false, true).size();
    } else if (tag < source_.size() && source_[tag + 1] != '{' && sign != '+') {
      const size_t newline = end > at_ ? source_.rfind('\n', end - 1) : source_.npos;
      const bool in_text = newline != source_.npos && newline >= at_;
      const size_t begin = in_text ? newline + 1 : at_;
      const bool at_line_start = in_text || at_ == 0 || source_[at_ - 1] == '\n';
      if (at_line_start && strip(std::string_view(source_).substr(begin, end - begin), nullptr, true, false).empty())
        end = begin;
    }
    if (end > at_) add(Token::Text, source_.substr(at_, end - at_));
    advance(tag);
  }

  /// Past a tag's end, which takes white space on its right: all of it, or one line end after a block.
  void close(std::string_view end, bool block) {
    const char sign = source_[at_];
    size_t to = at_ + end.size() + (sign == '-' || sign == '+');
    if (sign == '-') {
      for (CodePoint c; to < source_.size() && is_python_space((c = code_point_at(source_, to)).value);) to += c.bytes;
    } else if (block && sign != '+' && to < source_.size() && source_[to] == '\n') {
      ++to;
    }
    advance(to);
  }

  bool closes(std::string_view end, bool block) const {
    return here(end) || (here("-") && source_.compare(at_ + 1, end.size(), end) == 0) ||
           (block && here("+") && source_.compare(at_ + 1, end.size(), end) == 0);
  }

  void comment() {
    size_t end = source_.find("#}", at_ + 2);
    if (end == source_.npos) throw Problem{"a comment {# without its #}"};
    if (end > at_ + 2 && (source_[end - 1] == '-' || source_[end - 1] == '+')) --end;
    advance(end);
    close("#}", true);
  }

  /// {% raw %} … {% endraw %}: text as it stands.
  bool raw() {
    const size_t start = at_;
    const auto tag = [&](std::string_view name) {
      if (!here("{%")) return false;
      size_t i = at_ + 2;
      if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
      while (i < source_.size() && std::isspace(static_cast<unsigned char>(source_[i]))) ++i;
      if (source_.compare(i, name.size(), name) != 0) return false;
      i += name.size();
      while (i < source_.size() && std::isspace(static_cast<unsigned char>(source_[i]))) ++i;
      const size_t begin = std::exchange(at_, i);
      if (closes("%}", true)) return true;
      return at_ = begin, false;
    };
    if (!tag("raw")) return at_ = start, false;
    close("%}", true);
    for (size_t end = source_.find("{%", at_); end != source_.npos; end = source_.find("{%", end + 1)) {
      const size_t begin = std::exchange(at_, end);
      const bool found = tag("endraw");
      const size_t closing = std::exchange(at_, begin);
      if (!found) continue;
      text(end);
      advance(closing);
      close("%}", true);
      return true;
    }
    throw Problem{"{% raw %} without its {% endraw %}"};
  }

  void inside(bool output) {
    const std::string_view end = output ? "}}" : "%}";
    add(output ? Token::OutputBegin : Token::BlockBegin, "");
    at_ += 2;
    if (here("-") || here("+")) ++at_;
    std::string open;  // brackets, within which "}}" is no end
    for (;;) {
      while (at_ < source_.size() && std::isspace(static_cast<unsigned char>(source_[at_]))) advance(at_ + 1);
      if (at_ == source_.size()) throw Problem{std::string("a tag without its ") + std::string(end)};
      if (open.empty() && closes(end, !output)) break;
      if (here("'") || here("\"")) {
        string();
      } else if (is_digit(source_[at_])) {
        number();
      } else if (is_name(source_[at_])) {
        const size_t begin = at_;
        while (at_ < source_.size() && is_name(source_[at_])) ++at_;
        add(Token::Name, source_.substr(begin, at_ - begin));
      } else {
        symbol(open);
      }
    }
    add(output ? Token::OutputEnd : Token::BlockEnd, "");
    close(end, !output);
  }

  void symbol(std::string& open) {
    for (const std::string_view two : {"==", "!=", "<=", ">=", "//", "**"}) {
      if (here(two)) return at_ += 2, add(Token::Operator, std::string(two));
    }
    const char c = source_[at_];
    if (std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == std::string_view::npos)
      throw Problem{std::string("an unexpected '") + c + "'"};
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) throw Problem{std::string("a '") + c + "' that nothing opened"};
      open.pop_back();
    }
    ++at_;
    add(Token::Operator, std::string(1, c));
  }

  void number() {
    const size_t begin = at_;
    auto digits = [&] {
      while (at_ < source_.size() && (is_digit(source_[at_]) || source_[at_] == '_')) ++at_;
    };
    digits();
    bool real = false;
    if (here(".") && at_ + 1 < source_.size() && is_digit(source_[at_ + 1])) ++at_, digits(), real = true;
    if (here("e") || here("E")) {
      const size_t sign = at_ + 1 < source_.size() && (source_[at_ + 1] == '-' || source_[at_ + 1] == '+');
      if (at_ + 1 + sign < source_.size() && is_digit(source_[at_ + 1 + sign])) at_ += 1 + sign, digits(), real = true;
    }
    std::string text = source_.substr(begin, at_ - begin);
    std::erase(text, '_');
    add(real ? Token::Float : Token::Integer, text);
  }

  void string() {
    const char quote = source_[at_];
    std::string value;
    size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        escape(++i, value);
      } else {
        value += source_[i];
      }
    }
    if (i >= source_.size()) throw Problem{"a string without its closing quote"};
    add(Token::String, std::move(value));
    advance(i + 1);
  }

  /// Python's escapes; one that it does not know stands for itself, backslash included.
  void escape(size_t& i, std::string& value) const {
    static constexpr std::string_view names = "\\'\"nrtbfav0", values("\\'\"\n\r\t\b\f\a\v\0", 11);
    const char c = source_[i];
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      uint32_t code = 0;
      const char* begin = source_.data() + i + 1;
      if (i + digits >= source_.size() || std::from_chars(begin, begin + digits, code, 16).ptr != begin + digits ||
          code > 0x10FFFF) {
        throw Problem{"a broken escape in a string"};
      }
      append_utf8(value, code);
      i += digits;
    } else if (const size_t known = names.find(c); known != names.npos) {
      value += values[known];
    } else if (c != '\n') {
      value += {'\\', c};
    }
  }

  std::string source_;
  size_t at_ = 0;
  int& line_;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, int& line) {
  return Lexer(source, line).run();
}

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
