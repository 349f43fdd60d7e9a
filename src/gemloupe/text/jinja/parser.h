// A chat template as a tree.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gemloupe/text/jinja/value.h"

namespace gemloupe {
inline namespace v0 {
namespace jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum Kind {
    Constant,   // value
    Variable,   // name
    ListOf,     // parts; tuples too
    DictOf,     // named
    Attribute,  // parts[0].name
    Item,       // parts[0][parts[1]]
    Slice,      // parts[0][parts[1]:parts[2]:parts[3]], null where left out
    Call,       // parts[0](parts[1…], named)
    Filter,     // parts[0] | name(parts[1…], named)
    Test,       // parts[0] is name(parts[1…], named)
    Unary,      // name: "not", "-", "+"
    Binary,     // name: the operator, "and" and "or" among them
    Compare,    // parts[0] operators[0] parts[1] operators[1] parts[2] …
    Condition,  // parts[1] if parts[0] else parts[2], null where left out
  } kind;
  int line = 0;
  std::string name;
  Value value = None{};
  std::vector<ExpressionPtr> parts;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
  enum Kind {
    Text,      // text
    Output,    // expression
    If,        // expression, body, otherwise
    For,       // targets in expression if condition, body, otherwise
    Set,       // targets = expression
    SetBlock,  // targets = what body writes
    Macro,     // text(parameters), body
    Scope,     // body: {% generation %}
    Break,
    Continue,
  } kind;
  int line = 0;
  std::string text = {};
  ExpressionPtr expression = {}, condition = {};
  std::vector<std::string> targets = {};                               // names; "a.b" is an attribute of a namespace
  std::vector<std::pair<std::string, ExpressionPtr>> parameters = {};  // with defaults, null where there is none
  Block body = {}, otherwise = {};
};

/// Errors: Problem, with `line` set to where.
Block parse(std::string_view source, int& line);

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
