#include <doctest/doctest.h>

#include "vectors.h"

using namespace gemloupe;
using namespace gemloupe::test;

namespace {

std::string joined(const std::vector<int64_t>& ids) {
  return json(ids).dump();
}

/// The package doubles the <bos> of a text that begins with one.
bool doubles_bos(const json& ids) {
  return ids.size() > 1 && ids[0] == 2 && ids[1] == 2;
}

void check_encodings(const Tokenizer& tokenizer, const json& vectors) {
  for (const json& vector : vectors["encodings"]) {
    const std::string text = vector["text"];
    CAPTURE(text);
    json ids = vector["ids"], offsets = vector["offsets"];
    if (vectors["name"] != "nothing around" && doubles_bos(ids)) ids.erase(0), offsets.erase(0);
    const Encoding encoding = tokenizer.encode(text);
    CHECK(joined(encoding.ids) == ids.dump());
    CHECK(json(code_point_ranges(text, encoding.offsets)).dump() == offsets.dump());
  }
}

void check_decodings(const Tokenizer& tokenizer, const json& vectors) {
  for (const json& vector : vectors["decodings"]) {
    const auto ids = vector["ids"].get<std::vector<int64_t>>();
    CAPTURE(vector["ids"].dump());
    CHECK(tokenizer.decode(ids, vector["skip"]) == vector["text"].get<std::string>());
  }
}

}  // namespace

TEST_CASE("tokenizer.json: ids, offsets and text as the package tokenizers has them") {
  for (const json& vectors : read_vectors("tokenizer_vectors.json")) {
    const std::string name = vectors["name"];
    CAPTURE(name);
    const Tokenizer tokenizer = tiny_tokenizer(vectors["patch"].dump());
    CHECK(tokenizer.size() == vectors["size"].get<size_t>());
    check_encodings(tokenizer, vectors);
    check_decodings(tokenizer, vectors);
  }
}

TEST_CASE("a GGUF's vocabulary gives what the tokenizer.json made of it gives") {
  const json vectors = read_vectors("tokenizer_vectors.json")[0];
  GgufVocabulary vocabulary = tiny_gguf_vocabulary();
  SUBCASE("without merges: in the order of the tokens") {}
  SUBCASE("with merges") {
    vocabulary.model = "gemma4";
    const json content = read_vectors("tokenizer.json");
    for (const json& pair : content["model"]["merges"]) {
      vocabulary.merges.push_back(pair[0].get<std::string>() + " " + pair[1].get<std::string>());
    }
  }
  const Tokenizer tokenizer = tokenizer_from_gguf(vocabulary);
  check_encodings(tokenizer, vectors);
  check_decodings(tokenizer, vectors);
}

TEST_CASE("tokenizer.model: ids as SentencePiece has them") {
  const Tokenizer tokenizer = tokenizer_from_model(read_text("tokenizer.model"));
  for (const json& vector : read_vectors("sentencepiece_vectors.json")) {
    const std::string text = vector["text"];
    CAPTURE(text);
    CHECK(joined(tokenizer.encode(text, false).ids) == vector["ids"].dump());
  }
  CHECK(tokenizer.encode("<start_of_turn>").ids.size() == 2);
  CHECK(tokenizer.special().bos == 2);
  CHECK(tokenizer.special().padding == 0);
}

TEST_CASE("<bos> comes once") {
  const Tokenizer tokenizer = tiny_tokenizer();
  const auto plain = tokenizer.encode("Paris");
  CHECK(plain.ids.front() == 2);
  CHECK(plain.offsets.front() == Range{0, 0});
  const auto written = tokenizer.encode("<bos>Paris");
  CHECK(written.ids == plain.ids);
  CHECK(written.offsets.front() == Range{0, 5});
  CHECK(tokenizer.encode("<bos><bos>Paris").ids.size() == plain.ids.size() + 1);
  CHECK(tokenizer.encode("").ids == std::vector<int64_t>{2});
  CHECK(tokenizer.encode("", false).ids.empty());
  CHECK(tokenizer.encode("Paris", false).ids.size() == plain.ids.size() - 1);
}

TEST_CASE("tokenizer_config.json says what is put around a text") {
  const auto around = [](const char* config) {
    const Tokenizer tokenizer = tiny_tokenizer("{}", config);
    return std::pair(tokenizer.prefix(), tokenizer.suffix());
  };
  using Ids = std::vector<int64_t>;
  CHECK(around(R"({"bos_token": "<bos>"})") == std::pair(Ids{2}, Ids{}));
  CHECK(around(R"({"add_bos_token": false})") == std::pair(Ids{}, Ids{}));
  CHECK(around(R"({"add_bos_token": true, "add_eos_token": true})") == std::pair(Ids{2}, Ids{1}));
  CHECK(around(R"({"add_bos_token": true, "bos_token": {"content": "<start_of_turn>"}})").first == Ids{4});
}

TEST_CASE("tokens and ids") {
  const Tokenizer tokenizer = tiny_tokenizer(R"({"added_tokens": [{"id": 5000, "content": "<x>", "special": true}]})");
  CHECK(tokenizer.token_to_id("<x>") == 5000);
  CHECK(tokenizer.id_to_token(5000) == "<x>");
  CHECK(tokenizer.end_id() == 5001);
  CHECK(tokenizer.id_to_token(4999) == std::nullopt);
  CHECK(tokenizer.id_to_token(-1) == std::nullopt);
  CHECK(tokenizer.token_to_id("no such token") == std::nullopt);
  CHECK(tokenizer.is_special(5000));
  CHECK_FALSE(tokenizer.is_special(2));  // <bos> is no added token here
  CHECK(tokenizer.added_tokens().size() == 1);
  CHECK(tokenizer.special().bos == 2);
  CHECK(tokenizer.special().eos == 1);
  CHECK(tokenizer.special().padding == 0);
  CHECK(tokenizer.special().unknown == 3);
}

TEST_CASE("added tokens that normalise to nothing or to the same") {
  const Tokenizer tokenizer = tiny_tokenizer(R"({
      "normalizer": {"type": "Sequence", "normalizers": [
          {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
          {"type": "Replace", "pattern": {"String": "~"}, "content": ""}]},
      "added_tokens": [{"id": 5000, "content": "~", "normalized": true}, {"id": 5001, "content": "", "special": true},
                       {"id": 5002, "content": "x y", "normalized": true}, {"id": 5003, "content": "x~ y", "normalized": true}]})");
  CHECK(tokenizer.encode(std::string("x y~x\0~x", 8), false).ids ==
        std::vector<int64_t>{5002, *tokenizer.token_to_id("x"), *tokenizer.token_to_id("<0x00>"),
                             *tokenizer.token_to_id("x")});
}

TEST_CASE("bytes that are not UTF-8 read as U+FFFD, and offsets stay those of the bytes") {
  const Tokenizer tokenizer = tiny_tokenizer();
  const std::string text = "a\xFF\xE2\x96 b\xC3";
  const Encoding encoding = tokenizer.encode(text, false);
  CHECK(encoding.ids == tokenizer.encode("a\xEF\xBF\xBD\xEF\xBF\xBD b\xEF\xBF\xBD", false).ids);
  CHECK(encoding.offsets.back() == Range{6, 7});
  for (const auto& [begin, end] : encoding.offsets) CHECK((begin < end && end <= text.size()));
}

TEST_CASE("a stream hands out whole characters, and all of them") {
  const Tokenizer tokenizer = tiny_tokenizer();
  const std::string text = "Paris 👩‍👩‍👧 𝒳é\n\n東京 done";
  TokenStream stream(tokenizer);
  std::string all;
  for (const int64_t id : tokenizer.encode(text, false).ids) {
    const std::string part = stream.push(id);
    for (size_t at = 0; at < part.size();) {
      const CodePoint point = code_point_at(part, at);
      CHECK(point.valid);
      at += point.bytes;
    }
    all += part;
  }
  CHECK(all + stream.finish() == text);
  const auto byte = [&](const char* token) { return *tokenizer.token_to_id(token); };
  CHECK(stream.push(byte("<0xE2>")) == "");
  CHECK(stream.push(byte("<0x96>")) == "");
  CHECK(stream.push(byte("<0x81>")) == "▁");
  CHECK(stream.push(byte("<0xE2>")) == "");
  CHECK(stream.push(*tokenizer.token_to_id("a")) ==
        "\xEF\xBF\xBD"
        "a");
  CHECK(stream.push(byte("<0xF0>")) == "");
  CHECK(stream.finish() == "\xEF\xBF\xBD");
  CHECK(stream.push(byte("<0x81>")) == "\xEF\xBF\xBD");
  CHECK(TokenStream(tokenizer, true).push(2) == "");
  CHECK(TokenStream(tokenizer).push(2) == "<bos>");
}
