#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "gemloupe/text/gguf_vocabulary.h"
#include "vectors.h"

using namespace gemloupe;
using namespace gemloupe::test;

namespace {

GgufVocabulary of_json(const std::string& patch, const std::string& model, int64_t rows, const json& config = nullptr) {
  json content = read_vectors("tokenizer.json");
  content.merge_patch(json::parse(patch));
  const TemporaryFile file("tokenizer.json", content.dump());
  TokenizerFiles files;
  files.tokenizer_json = file.path();
  files.tokenizer_config = config;
  return gguf_vocabulary(files, model, rows);
}

GgufVocabulary of_model(const std::string& content, int64_t rows) {
  const TemporaryFile file("tokenizer.model", content);
  TokenizerFiles files;
  files.tokenizer_model = file.path();
  return gguf_vocabulary(files, "llama", rows);
}

json encodings() {
  return read_vectors("tokenizer_vectors.json")[0]["encodings"];
}

void check_same(const Tokenizer& one, const Tokenizer& other, size_t longest_run = SIZE_MAX) {
  for (const json& vector : encodings()) {
    const std::string text = vector["text"];
    if (longest_run < SIZE_MAX && text.find(std::string(longest_run + 1, ' ')) != text.npos) continue;
    CAPTURE(text);
    const Encoding found = one.encode(text), expected = other.encode(text);
    CHECK(json(found.ids).dump() == json(expected.ids).dump());
    CHECK(found.offsets == expected.offsets);
    CHECK(one.decode(found.ids) == other.decode(found.ids));
    CHECK(one.decode(found.ids, true) == other.decode(found.ids, true));
  }
  CHECK(one.special().bos == other.special().bos);
  CHECK(one.special().eos == other.special().eos);
  CHECK(one.special().padding == other.special().padding);
  CHECK(one.special().unknown == other.special().unknown);
}

}  // namespace

TEST_CASE("a tokenizer.json as a GGUF's vocabulary: the same ids, offsets and text, or a refusal") {
  const std::set<std::string> cannot_be_said{
      "added tokens of all kinds", "prepended space",         "replacements of other lengths", "unknown tokens",
      "whole words first",         "unknown tokens, one each"};
  for (const json& vectors : read_vectors("tokenizer_vectors.json")) {
    const std::string name = vectors["name"], patch = vectors["patch"].dump();
    const Tokenizer original = tiny_tokenizer(patch);
    for (const char* model : {"llama", "gemma4"}) {
      CAPTURE(name);
      CAPTURE(model);
      if (cannot_be_said.contains(name)) {
        CHECK_THROWS_WITH_AS(of_json(patch, model, 5000), doctest::Contains("which a GGUF file cannot say"),
                             BadTokenizer);
        continue;
      }
      const GgufVocabulary vocabulary = of_json(patch, model, original.end_id() + 7);
      CHECK(vocabulary.tokens.size() == static_cast<size_t>(original.end_id()) + 7);
      CHECK(vocabulary.tokens.back() == "[PAD" + std::to_string(original.end_id() + 6) + "]");
      CHECK(vocabulary.types.back() == 5);
      check_same(tokenizer_from_gguf(vocabulary), original);
    }
  }
}

TEST_CASE("a GGUF's vocabulary lists merges where the order of its tokens does not say them") {
  const int64_t rows = tiny_tokenizer().end_id();
  const GgufVocabulary plain = of_json("{}", "llama", rows);
  CHECK(plain.merges.empty());
  CHECK(!of_json("{}", "gemma4", rows).merges.empty());
  json merges = read_vectors("tokenizer.json")["model"]["merges"];
  std::reverse(merges.begin(), merges.end());
  const json patch{{"model", {{"merges", merges}}}};
  const GgufVocabulary reversed = of_json(patch.dump(), "llama", rows);
  CHECK(reversed.merges.size() == merges.size());
  check_same(tokenizer_from_gguf(reversed), tiny_tokenizer(patch.dump()));
}

TEST_CASE("a GGUF's vocabulary as llama.cpp writes it") {
  const GgufVocabulary found = of_json("{}", "llama", tiny_tokenizer().end_id()), expected = tiny_gguf_vocabulary();
  REQUIRE(found.tokens.size() == expected.tokens.size());
  for (size_t id = 0; id < found.types.size(); ++id) {
    CAPTURE(found.tokens[id]);
    // Runs of spaces are tokens of the text there; in a tokenizer.json merges make them, and here too.
    const bool is_run = expected.tokens[id].find_first_not_of(' ') == std::string::npos;
    if (!is_run) CHECK(found.tokens[id] == expected.tokens[id]);
    if (!is_run && found.tokens[id] != "<unk>") CHECK(found.types[id] == expected.types[id]);
  }
  // What is made sooner has the higher score, and every other token a lower one.
  float last = 1;
  for (size_t id = 0; id < found.types.size(); ++id) {
    if (found.types[id] == 3) CHECK(found.scores[id] == -1000);
    if (found.types[id] != 1 || found.tokens[id].size() < 4) continue;
    CHECK(found.scores[id] < last);
    last = found.scores[id];
  }
  CHECK(found.add_bos);
  CHECK(!found.add_eos);
  CHECK(!found.add_space_prefix);
}

TEST_CASE("a tokenizer.model as a GGUF's vocabulary") {
  const std::string content = read_text("tokenizer.model");
  const Tokenizer original = tokenizer_from_model(content);
  const Tokenizer read = tokenizer_from_gguf(of_model(content, original.end_id()));
  check_same(read, original, 12);  // longer runs than the longest token of spaces are cut as a tokenizer.json cuts them
  const std::string run(13, ' ');
  CHECK(read.encode(run).ids == tiny_tokenizer().encode(run).ids);
  CHECK(read.prefix() == original.prefix());
}

TEST_CASE("tokens without a row are left out, with what is made of them") {
  const Tokenizer original = tiny_tokenizer();
  const int64_t rows = original.end_id() / 2;
  const GgufVocabulary half = of_json("{}", "gemma4", rows);
  CHECK(half.tokens.size() == static_cast<size_t>(rows));
  const Tokenizer read = tokenizer_from_gguf(half);
  for (const json& vector : encodings())
    for (const int64_t id : read.encode(vector["text"].get<std::string>()).ids) CHECK(id < rows);
}

TEST_CASE("a GGUF's own vocabulary is taken as it is; no tokenizer is refused") {
  TokenizerFiles files;
  CHECK_THROWS_AS(gguf_vocabulary(files, "llama", 10), NotFound);
  files.gguf = tiny_gguf_vocabulary();
  CHECK(gguf_vocabulary(files, "gemma4", 10).tokens == files.gguf->tokens);
}

TEST_CASE("what is put around a text goes along, other tokens than <bos> and <eos> do not") {
  const auto with = [](const char* config) { return of_json("{}", "llama", 3000, json::parse(config)); };
  CHECK(!with(R"({"add_bos_token": false})").add_bos);
  CHECK(with(R"({"add_bos_token": true, "add_eos_token": true})").add_eos);
  const char* other = R"({"post_processor": {"single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}, {"Sequence":
      {"id": "A", "type_id": 0}}], "special_tokens": {"<x>": {"id": "<x>", "ids": [4], "tokens": ["<x>"]}}}})";
  CHECK_THROWS_WITH_AS(of_json(other, "llama", 3000), doctest::Contains("other tokens around a text"), BadTokenizer);
}
