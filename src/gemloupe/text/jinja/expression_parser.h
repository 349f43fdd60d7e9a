// The parser's part for tokens and expressions; parser.cpp has the statements. Only that file includes this.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "gemloupe/text/jinja/lexer.h"
#include "gemloupe/text/jinja/parser.h"

namespace gemloupe {
inline namespace v0 {
namespace jinja {

class ExpressionParser {
 protected:
  static constexpr int deepest = 200;  // of nested expressions and blocks: far more than a template has

  ExpressionParser(std::string_view source, int& line) : tokens_(tokenize(source, line)), line_(line) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(Token::Kind kind) const { return now().kind == kind; }
  bool is(Token::Kind kind, std::string_view text) const { return now().kind == kind && now().text == text; }
  bool is_op(std::string_view text) const { return is(Token::Operator, text); }
  bool is_word(std::string_view text) const { return is(Token::Name, text); }

  std::string take() {
    line_ = now().line;
    return tokens_[is(Token::End) ? at_ : at_++].text;
  }
  bool skip(Token::Kind kind, std::string_view text) { return is(kind, text) && (take(), true); }
  bool skip_op(std::string_view text) { return skip(Token::Operator, text); }
  bool skip_word(std::string_view text) { return skip(Token::Name, text); }

  std::string expect(Token::Kind kind, const char* what) {
    if (!is(kind)) fail(std::string("expected ") + what + ", found " + found());
    return take();
  }
  void expect_op(const char* text) {
    if (!skip_op(text)) fail(std::string("expected '") + text + "', found " + found());
  }
  std::string found() const {
    return is(Token::End)                                ? "the end"
           : is(Token::BlockEnd) || is(Token::OutputEnd) ? "the end of the tag"
                                                         : "'" + now().text + "'";
  }
  [[noreturn]] void fail(const std::string& message) {
    line_ = now().line;
    throw Problem{message};
  }

  /// Counts how deep the parser has gone.
  struct Depth {
    explicit Depth(ExpressionParser& p) : parser(p) {
      if (++parser.depth_ > deepest) parser.fail("nested too deeply");
    }
    ~Depth() { --parser.depth_; }
    ExpressionParser& parser;
  };

  ExpressionPtr make(Expression::Kind kind, ExpressionPtr first = nullptr, std::string name = {}) const {
    auto e = std::make_unique<Expression>();
    e->kind = kind;
    e->line = now().line;
    e->name = std::move(name);
    if (first) e->parts.push_back(std::move(first));
    return e;
  }

  // Expressions, from the loosest binding to the tightest.

  /// One expression, or several with commas between, which make a tuple.
  ExpressionPtr tuple(bool with_condition) {
    ExpressionPtr first = with_condition ? expression() : disjunction();
    if (!is_op(",")) return first;
    auto list = make(Expression::ListOf, std::move(first));
    while (skip_op(",") && !is(Token::BlockEnd) && !is(Token::OutputEnd) && !is_op(")")) {
      list->parts.push_back(with_condition ? expression() : disjunction());
    }
    return list;
  }

  ExpressionPtr expression() {
    const Depth depth(*this);
    ExpressionPtr value = disjunction();
    while (skip_word("if")) {
      auto condition = make(Expression::Condition, disjunction());
      condition->parts.push_back(std::move(value));
      condition->parts.push_back(skip_word("else") ? expression() : nullptr);
      value = std::move(condition);
    }
    return value;
  }

  template <typename Operand>
  ExpressionPtr chain(Token::Kind kind, std::initializer_list<std::string_view> operators, Operand operand) {
    ExpressionPtr left = operand();
    for (size_t length = 1;
         now().kind == kind && std::find(operators.begin(), operators.end(), now().text) != operators.end(); ++length) {
      if (length > deepest) fail("nested too deeply");  // the tree of a + b + c + … leans to the left
      auto binary = make(Expression::Binary, std::move(left), take());
      binary->parts.push_back(operand());
      left = std::move(binary);
    }
    return left;
  }

  ExpressionPtr disjunction() {
    return chain(Token::Name, {"or"}, [&] { return conjunction(); });
  }
  ExpressionPtr conjunction() {
    return chain(Token::Name, {"and"}, [&] { return negation(); });
  }

  ExpressionPtr negation() {
    const Depth depth(*this);
    if (!skip_word("not")) return comparison();
    return make(Expression::Unary, negation(), "not");
  }

  ExpressionPtr comparison() {
    ExpressionPtr first = sum();
    auto compare = make(Expression::Compare);
    for (;;) {
      static constexpr std::string_view operators[] = {"==", "!=", "<", "<=", ">", ">="};
      if (is(Token::Operator) &&
          std::find(std::begin(operators), std::end(operators), now().text) != std::end(operators)) {
        compare->operators.push_back(take());
      } else if (skip_word("in")) {
        compare->operators.push_back("in");
      } else if (is_word("not") && next().kind == Token::Name && next().text == "in") {
        take(), take();
        compare->operators.push_back("not in");
      } else {
        break;
      }
      compare->parts.push_back(sum());
    }
    if (compare->parts.empty()) return first;
    compare->parts.insert(compare->parts.begin(), std::move(first));
    return compare;
  }

  ExpressionPtr sum() {
    return chain(Token::Operator, {"+", "-"}, [&] { return concatenation(); });
  }
  ExpressionPtr concatenation() {
    return chain(Token::Operator, {"~"}, [&] { return product(); });
  }
  ExpressionPtr product() {
    return chain(Token::Operator, {"*", "/", "//", "%"}, [&] { return power(); });
  }
  ExpressionPtr power() {
    return chain(Token::Operator, {"**"}, [&] { return unary(true); });
  }

  ExpressionPtr unary(bool with_filters) {
    const Depth depth(*this);
    ExpressionPtr value;
    if (is_op("-") || is_op("+")) {
      const std::string sign = take();
      value = make(Expression::Unary, unary(false), sign);
    } else {
      value = postfix(primary());
    }
    return with_filters ? postfix_filters(std::move(value)) : std::move(value);
  }

  ExpressionPtr constant(Value value) const {
    auto e = make(Expression::Constant);
    e->value = std::move(value);
    return e;
  }

  ExpressionPtr primary() {
    if (is(Token::Name)) {
      const std::string name = take();
      if (name == "true" || name == "True") return constant(true);
      if (name == "false" || name == "False") return constant(false);
      if (name == "none" || name == "None") return constant(None{});
      return make(Expression::Variable, nullptr, name);
    }
    if (is(Token::String)) {
      std::string text = take();
      while (is(Token::String)) text += take();
      return constant(std::move(text));
    }
    if (is(Token::Integer) || is(Token::Float)) return number();
    if (skip_op("(")) return parenthesis();
    if (skip_op("[")) return list();
    if (skip_op("{")) return dict();
    fail("expected an expression, found " + found());
  }

  ExpressionPtr number() {
    const bool real = is(Token::Float);
    const std::string text = take();
    double value = 0;
    int64_t integer = 0;
    const char* end = text.data() + text.size();
    const auto error =
        real ? std::from_chars(text.data(), end, value).ec : std::from_chars(text.data(), end, integer).ec;
    if (error != std::errc()) fail("a number out of range");
    return real ? constant(value) : constant(integer);
  }

  ExpressionPtr parenthesis() {
    if (skip_op(")")) return make(Expression::ListOf);
    ExpressionPtr inside = tuple(true);
    expect_op(")");
    return inside;
  }

  ExpressionPtr list() {
    auto all = make(Expression::ListOf);
    while (!skip_op("]")) {
      if (!all->parts.empty()) expect_op(",");
      if (skip_op("]")) break;
      all->parts.push_back(expression());
    }
    return all;
  }

  ExpressionPtr dict() {
    auto all = make(Expression::DictOf);
    while (!skip_op("}")) {
      if (!all->named.empty()) expect_op(",");
      if (skip_op("}")) break;
      std::string key = expect(Token::String, "a string as a dict's key");
      expect_op(":");
      all->named.emplace_back(std::move(key), expression());
    }
    return all;
  }

  ExpressionPtr postfix(ExpressionPtr value) {
    for (int length = 0;; ++length) {
      if (length > deepest) fail("nested too deeply");
      if (skip_op(".")) {
        if (is(Token::Integer)) {
          auto item = make(Expression::Item, std::move(value));
          item->parts.push_back(number());
          value = std::move(item);
        } else {
          value = make(Expression::Attribute, std::move(value), expect(Token::Name, "an attribute's name"));
        }
      } else if (skip_op("[")) {
        value = subscript(std::move(value));
      } else if (is_op("(")) {
        value = make(Expression::Call, std::move(value));
        arguments(*value);
      } else {
        return value;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr value) {
    ExpressionPtr bounds[3];
    int colons = 0;
    while (!is_op("]")) {
      if (skip_op(":")) {
        if (++colons > 2) fail("a slice with more than two ':'");
      } else if (bounds[colons]) {
        fail("expected ']', found " + found());
      } else {
        bounds[colons] = expression();
      }
    }
    take();
    auto result = make(colons > 0 ? Expression::Slice : Expression::Item, std::move(value));
    if (colons == 0 && !bounds[0]) fail("expected an index");
    for (int i = 0; i < (colons > 0 ? 3 : 1); ++i) result->parts.push_back(std::move(bounds[i]));
    return result;
  }

  void arguments(Expression& call) {
    expect_op("(");
    for (bool first = true; !skip_op(")"); first = false) {
      if (!first) expect_op(",");
      if (skip_op(")")) break;
      if (is_op("*") || is_op("**")) fail("arguments of the form *args are not implemented");
      if (is(Token::Name) && next().kind == Token::Operator && next().text == "=") {
        std::string name = take();
        take();
        call.named.emplace_back(std::move(name), expression());
      } else {
        if (!call.named.empty()) fail("an argument without a name after one with a name");
        call.parts.push_back(expression());
      }
    }
  }

  ExpressionPtr postfix_filters(ExpressionPtr value) {
    for (int length = 0;; ++length) {
      if (length > deepest) fail("nested too deeply");
      if (skip_op("|")) {
        value = make(Expression::Filter, std::move(value), expect(Token::Name, "a filter's name"));
        if (is_op("(")) arguments(*value);
      } else if (skip_word("is")) {
        value = test(std::move(value));
      } else if (is_op("(")) {
        value = make(Expression::Call, std::move(value));
        arguments(*value);
      } else {
        return value;
      }
    }
  }

  ExpressionPtr test(ExpressionPtr value) {
    const bool negated = skip_word("not");
    auto result = make(Expression::Test, std::move(value), expect(Token::Name, "a test's name"));
    if (is_word("is")) fail("a test after a test");
    const bool word_goes_on = is_word("else") || is_word("or") || is_word("and");
    if (is_op("(")) {
      arguments(*result);
    } else if ((is(Token::Name) && !word_goes_on) || is(Token::String) || is(Token::Integer) || is(Token::Float) ||
               is_op("[") || is_op("{")) {
      result->parts.push_back(postfix(primary()));
    }
    return negated ? make(Expression::Unary, std::move(result), "not") : std::move(result);
  }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int& line_;
  int depth_ = 0;
};

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
