// A chat template cut into tokens, with Jinja's control of white space as transformers sets it: trim_blocks,
// lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gemloupe {
inline namespace v0 {
namespace jinja {

struct Token {
  enum Kind { Text, OutputBegin, OutputEnd, BlockBegin, BlockEnd, Name, String, Integer, Float, Operator, End } kind;
  std::string text;
  int line;
};

/// Errors: Problem, with `line` set to where.
std::vector<Token> tokenize(std::string_view source, int& line);

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
