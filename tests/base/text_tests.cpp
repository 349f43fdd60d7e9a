#include <doctest/doctest.h>

#include <regex>

#include "gemloupe/base/text.h"

using namespace gemloupe;

namespace {

/// Every word of at most `longest` letters of `alphabet`.
std::vector<std::string> words(const std::string& alphabet, size_t longest) {
  std::vector<std::string> all{""};
  for (size_t from = 0, length = 0; length < longest; ++length) {
    const size_t end = all.size();
    for (; from < end; ++from)
      for (char letter : alphabet) all.push_back(all[from] + letter);
  }
  return all;
}

std::regex as_regex(std::string_view glob) {
  std::string out;
  for (size_t at = 0; at < glob.size(); ++at) {
    if (glob.substr(at).starts_with("**")) {
      out += ".*";
      ++at;
    } else if (glob[at] == '*') {
      out += "[^.]*";
    } else if (glob[at] == '?') {
      out += ".";
    } else {
      out += glob[at] == '.' ? "\\." : std::string(1, glob[at]);
    }
  }
  return std::regex(out);
}

std::string repeated(const std::string& word, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += word;
  return out;
}

}  // namespace

TEST_CASE("globs: the names that people write") {
  CHECK(glob_matches("layers.*.mlp.mlp_output", "layers.3.mlp.mlp_output"));
  CHECK(!glob_matches("layers.*.mlp_output", "layers.3.mlp.mlp_output"));
  CHECK(glob_matches("layers.**.mlp_output", "layers.3.mlp.mlp_output"));
  CHECK(glob_matches("**_output", "layers.3.mlp.mlp_output"));
  CHECK(glob_matches("layers.?.layer_input", "layers.7.layer_input"));
  CHECK(!glob_matches("layers.?.layer_input", "layers.17.layer_input"));
  CHECK(!glob_matches("logits", "logits.x"));
  CHECK(!glob_matches("logits", "Logits"));
}

TEST_CASE("globs: every short pattern against every short text, as a regular expression decides it") {
  const std::vector<std::string> texts = words("ab.", 4);
  for (const std::string& pattern : words("a.*?", 4)) {
    const std::regex regex = as_regex(pattern);
    for (const std::string& text : texts)
      if (glob_matches(pattern, text) != std::regex_match(text, regex)) FAIL_CHECK("'", pattern, "' on '", text, "'");
  }
}

TEST_CASE("globs: no pattern is slow, no text too long") {
  const std::string letters = repeated("a", 300);
  CHECK(!glob_matches(repeated("**a", 60) + "b", letters));
  CHECK(!glob_matches(repeated("*a", 60) + "b", letters));
  CHECK(!glob_matches(repeated("*", 300) + "b", letters));
  CHECK(glob_matches(repeated("*?", 100) + "**", letters));
  const std::string longer = repeated("a", 1'000'000);
  CHECK(glob_matches("a**", longer));
  CHECK(!glob_matches("a*b", longer));
}

TEST_CASE("split and join are each other's inverse") {
  CHECK(split("", '.') == std::vector<std::string>{""});
  CHECK(split("a", '.') == std::vector<std::string>{"a"});
  CHECK(split(".a..b.", '.') == std::vector<std::string>{"", "a", "", "b", ""});
  for (const std::string& text : words("a.", 5)) CHECK(join(split(text, '.'), ".") == text);
  CHECK(join({}, ", ").empty());
  CHECK(join({"a", "b", "c"}, ", ") == "a, b, c");
}

TEST_CASE("prefixes") {
  CHECK(starts_with_any("unsloth_fixed", {"trl_", "unsloth_"}));
  CHECK(!starts_with_any("my_unsloth_fixed", {"trl_", "unsloth_"}));
  CHECK(!starts_with_any("x", {}));
  CHECK(starts_with_any("x", {""}));
}

TEST_CASE("nearest: the likeliest first, nothing where nothing is near") {
  const std::vector<std::string> names{"mlp_input",   "mlp_output", "layer_output",
                                       "layer_input", "logits",     "mlp_output"};
  CHECK(nearest("mlp_outptu", names).front() == "mlp_output");
  CHECK(nearest("mlp_outputs", names, 1) == std::vector<std::string>{"mlp_output"});
  CHECK(nearest("logit", names) == std::vector<std::string>{"logits"});
  CHECK(nearest("layer_output", names).front() == "layer_output");
  CHECK(nearest("zzzzzzzzzz", names).empty());
  CHECK(nearest("", {"logits"}).empty());
  CHECK(nearest("x", {}).empty());
  SUBCASE("a part of a name is near to it, however long that is") {
    CHECK(nearest("norm", {"layers.0.post_attention_layernorm.output"}).size() == 1);
    CHECK(nearest("no", {"layers.0.post_attention_layernorm.output"}).empty());
  }
  SUBCASE("each once, and no more than were asked for") {
    CHECK(nearest("mlp_output", {"mlp_output", "mlp_output", "mlp_outputs"}, 5).size() == 2);
    CHECK(nearest("aa", {"ab", "ac", "ad", "ae", "af"}).size() == 3);
    CHECK(nearest("aa", {"ab"}, 0).empty());
  }
  SUBCASE("a name that goes on and on") {
    CHECK(nearest(repeated("x", 5'000'000), names).empty());
  }
}

TEST_CASE("lists and shapes in messages") {
  CHECK(quoted_list({}).empty());
  CHECK(quoted_list({"a"}) == "'a'");
  CHECK(quoted_list({"a", "b"}) == "'a' or 'b'");
  CHECK(quoted_list({"a", "b", "c"}, " and ") == "'a', 'b' and 'c'");
  CHECK(shape_text({}) == "[]");
  CHECK(shape_text({2, -1, 48}) == "[2, -1, 48]");
}
