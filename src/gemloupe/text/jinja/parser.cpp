#include "gemloupe/text/jinja/parser.h"

#include "gemloupe/text/jinja/expression_parser.h"

namespace gemloupe {
inline namespace v0 {
namespace jinja {

namespace {

class Parser : private ExpressionParser {
 public:
  Parser(std::string_view source, int& line) : ExpressionParser(source, line) {}

  Block run() {
    Block block = statements({});
    if (!is(Token::End)) fail("{% " + now().text + " %} that nothing opened");
    return block;
  }

 private:
  /// Up to {% WORD, where WORD is one of `ends`; stops at the word.
  Block statements(std::initializer_list<std::string_view> ends) {
    const Depth depth(*this);
    Block block;
    while (!is(Token::End)) {
      const int line = now().line;
      if (is(Token::Text)) {
        block.push_back({.kind = Statement::Text, .line = line, .text = take()});
      } else if (is(Token::OutputBegin)) {
        take();
        block.push_back({.kind = Statement::Output, .line = line, .expression = tuple(true)});
        expect(Token::OutputEnd, "}}");
      } else {
        take();
        if (is(Token::Name) && (now().text.starts_with("end") || now().text == "else" || now().text == "elif")) {
          if (std::find(ends.begin(), ends.end(), now().text) == ends.end())
            fail("{% " + now().text + " %} that nothing opened");
          return block;
        }
        block.push_back(statement(line));
      }
    }
    if (ends.size() > 0) fail("expected {% " + std::string(*(ends.end() - 1)) + " %}, found the end");
    return block;
  }

  Statement statement(int line) {
    const std::string word = expect(Token::Name, "a statement");
    Statement s{.kind = Statement::Scope, .line = line};
    if (word == "if") {
      branch(s);
    } else if (word == "for") {
      loop(s);
    } else if (word == "set") {
      set(s);
    } else if (word == "macro") {
      macro(s);
    } else if (word == "generation") {
      s.body = body("endgeneration");
    } else if (word == "break" || word == "continue") {
      if (loops_ == 0) fail("{% " + word + " %} outside of a loop");
      s.kind = word == "break" ? Statement::Break : Statement::Continue;
    } else {
      fail("{% " + word +
           " %} is not implemented; gemloupe knows if, for, set, macro, generation, break, continue and raw");
    }
    expect(Token::BlockEnd, "%}");
    return s;
  }

  /// The block up to {% end %}, of which the word is taken.
  Block body(const char* end) {
    expect(Token::BlockEnd, "%}");
    Block block = statements({end});
    take();
    return block;
  }

  void branch(Statement& s) {
    const Depth depth(*this);
    s.kind = Statement::If;
    s.expression = tuple(false);
    expect(Token::BlockEnd, "%}");
    s.body = statements({"elif", "else", "endif"});
    const int line = now().line;
    const std::string word = take();
    if (word == "else") {
      s.otherwise = body("endif");
    } else if (word == "elif") {
      Statement other{.kind = Statement::If, .line = line};
      branch(other);
      s.otherwise.push_back(std::move(other));
    }
  }

  void loop(Statement& s) {
    s.kind = Statement::For;
    s.targets = targets();
    if (!skip_word("in")) fail("expected 'in', found " + found());
    s.expression = tuple(false);
    if (is_word("recursive")) fail("a recursive loop is not implemented");
    if (skip_word("if")) s.condition = expression();
    if (is_word("recursive")) fail("a recursive loop is not implemented");
    expect(Token::BlockEnd, "%}");
    ++loops_;
    s.body = statements({"else", "endfor"});
    --loops_;
    if (take() == "else") s.otherwise = body("endfor");
  }

  std::vector<std::string> targets() {
    const bool parentheses = skip_op("(");
    std::vector<std::string> names;
    do {
      if (!is(Token::Name)) break;
      names.push_back(take());
      if (skip_op(".")) names.back() += "." + expect(Token::Name, "a name");
    } while (skip_op(","));
    if (parentheses) expect_op(")");
    if (names.empty()) fail("expected a name to assign to, found " + found());
    return names;
  }

  void set(Statement& s) {
    s.targets = targets();
    if (skip_op("=")) {
      s.kind = Statement::Set;
      s.expression = tuple(true);
      return;
    }
    s.kind = Statement::SetBlock;
    if (is_op(
            "|")) {  // {% set x | upper %}…: the filter works on what the block writes, which is variable "" meanwhile
      auto input = make(Expression::Variable);
      s.expression = postfix_filters(std::move(input));
    }
    s.body = body("endset");
  }

  void macro(Statement& s) {
    s.kind = Statement::Macro;
    s.text = expect(Token::Name, "a macro's name");
    expect_op("(");
    while (!skip_op(")")) {
      if (!s.parameters.empty()) expect_op(",");
      s.parameters.emplace_back(expect(Token::Name, "a parameter"), nullptr);
      if (skip_op("=")) s.parameters.back().second = expression();
    }
    const int loops = std::exchange(loops_, 0);
    s.body = body("endmacro");
    loops_ = loops;
  }

  int loops_ = 0;  // around the statement at hand
};

}  // namespace

Block parse(std::string_view source, int& line) {
  return Parser(source, line).run();
}

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
