#include <doctest/doctest.h>

#include <functional>
#include <random>

#include "vectors.h"

using namespace gemloupe;
using namespace gemloupe::test;

namespace {

Bpe tiny_bpe(const std::string& without_words) {
  json content = read_vectors("tokenizer.json");
  // With a token that reaches from one word into the next, a whole text is one word.
  json& vocabulary = content["model"]["vocab"];
  const size_t next = vocabulary.size();
  if (!without_words.empty()) vocabulary[without_words] = next;
  return read_tokenizer_json(content.dump(), "tokenizer.json", nullptr).bpe;
}

size_t steps_for(const Bpe& bpe, const std::string& text) {
  std::vector<TokenSpan> tokens;
  size_t steps = 0;
  bpe.encode(text, tokens, &steps);
  return steps;
}

std::string repeated(const std::string& unit, size_t count) {
  std::string text;
  while (count-- > 0) text += unit;
  return text;
}

std::string random_letters(size_t count) {
  std::mt19937 random(7);
  std::string text;
  while (count-- > 0) text.push_back("etaoinshrdlu"[random() % 12]);
  return text;
}

}  // namespace

TEST_CASE("twice the text takes about twice the steps, a step being one of a heap") {
  for (const std::string token : {"", "a▁b"}) {
    const Bpe bpe = tiny_bpe(token);
    for (const auto& make : std::vector<std::function<std::string(size_t)>>{
             [](size_t n) { return std::string(n, 'a'); }, [](size_t n) { return repeated("▁", n); }, random_letters,
             [](size_t n) { return repeated("in▁the▁city▁", n / 12); }, [](size_t n) { return repeated("吾", n); }}) {
      const size_t once = steps_for(bpe, make(20'000)), twice = steps_for(bpe, make(40'000));
      CHECK(once < 20'000 * 4);
      CHECK(twice < 3 * once);
    }
  }
}

TEST_CASE("words apart or together give the same tokens") {
  const Bpe apart = tiny_bpe(""), together = tiny_bpe("~▁~");
  const std::string text = "in▁the▁city▁▁▁of▁▁Paris,▁the▁" + random_letters(500) + "▁" + random_letters(500) + "▁▁";
  std::vector<TokenSpan> a, b;
  apart.encode(text, a);
  together.encode(text, b);
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK((a[i].id == b[i].id && a[i].begin == b[i].begin && a[i].end == b[i].end));
}

TEST_CASE("merges of a token that the vocabulary lacks are refused when a text brings them up") {
  const Tokenizer tokenizer = tiny_tokenizer(R"({"model": {"merges": ["a b"]}})");
  CHECK(tokenizer.encode("a").ids.size() == 2);
  if (!tokenizer.token_to_id("ab"))
    CHECK_THROWS_WITH_AS(tokenizer.encode("ab"), doctest::Contains("\"ab\""), BadTokenizer);
}
