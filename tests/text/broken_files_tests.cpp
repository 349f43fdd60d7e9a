#include <doctest/doctest.h>

#include "gemloupe/text/json_reader.h"
#include "vectors.h"

using namespace gemloupe;
using namespace gemloupe::test;

namespace {

void refuses(const std::string& patch, const char* message) {
  CAPTURE(patch);
  CHECK_THROWS_WITH_AS(tiny_tokenizer(patch), doctest::Contains(message), BadTokenizer);
}

/// Fields of a SentencePiece model: a small number, or a few bytes.
std::string field(int number, int value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

std::string model_with(const std::string& normalizer, int kind = 2) {
  return field(1, field(1, "<unk>")) + field(2, field(3, kind)) + field(3, normalizer);
}

}  // namespace

TEST_CASE("components that are not implemented are refused by name") {
  refuses(R"({"normalizer": {"type": "NFKC"}})", "NFKC");
  refuses(R"({"normalizer": {"pattern": {"Regex": " +", "String": null}}})", "Regex");
  refuses(R"({"pre_tokenizer": {"type": "ByteLevel"}})", "ByteLevel");
  refuses(R"({"pre_tokenizer": {"pattern": {"String": "x"}}})", "Split");
  refuses(R"({"pre_tokenizer": {"invert": true}})", "invert");
  refuses(R"({"post_processor": {"type": "BertProcessing"}})", "BertProcessing");
  refuses(R"({"decoder": {"type": "Metaspace"}})", "Metaspace");
  refuses(R"({"decoder": null})", "decoder");
  refuses(R"({"decoder": {"decoders": [{"type": "Strip", "content": " ", "start": 0, "stop": 1}]}})", "Strip");
  refuses(R"({"model": {"type": "Unigram"}})", "Unigram");
  refuses(R"({"model": {"dropout": 0.1}})", "dropout");
  refuses(R"({"model": {"end_of_word_suffix": "</w>"}})", "end_of_word_suffix");
  refuses(R"({"model": {"something_new": true}})", "something_new");
  refuses(R"({"something_new": 1})", "something_new");
  refuses(R"({"added_tokens": [{"id": 1, "content": "<eos>", "single_word": true}]})", "single_word");
}

TEST_CASE("what contradicts itself is refused") {
  refuses(R"({"model": null})", "\"model\"");
  refuses(R"({"model": {"unk_token": "<none>"}})", "<none>");
  refuses(R"({"model": {"vocab": {"a": -1}}})", "-1");
  refuses(R"({"model": {"vocab": {"a": 1099511627776}}})", "1099511627776");
  refuses(R"({"model": {"vocab": {"a": 1.5}}})", "an integer");
  refuses(R"({"model": {"merges": ["a b c"]}})", "a b c");
  refuses(R"({"model": {"merges": [["a", "b", "c"]]}})", "two tokens");
  refuses(R"({"model": {"merges": [["a"]]}})", "two tokens");
  refuses(R"({"added_tokens": [{"id": 3, "content": "<eos>"}]})", "<eos>");
  refuses(R"({"added_tokens": [{"content": "<eos>"}]})", "<eos>");
  refuses(R"({"post_processor": {"special_tokens": {"<bos>": null}}})", "SpecialToken");
  refuses(R"({"post_processor": {"single": []}})", "Sequence");
  std::string nested = R"({"type": "Fuse"})";
  for (int i = 0; i < 20; ++i) nested = R"({"type": "Sequence", "decoders": [)" + nested + "]}";
  refuses(R"({"decoder": )" + nested + "}", "deep");
}

TEST_CASE("a broken tokenizer.json: the error has the file and the line") {
  CHECK_THROWS_WITH_AS(tokenizer_from_json("{\n \"model\": [1]}"),
                       doctest::Contains("tokenizer.json, line 2: expected an object"), BadTokenizer);
  CHECK_THROWS_WITH_AS(tokenizer_from_json(""), doctest::Contains("the end of the file"), BadTokenizer);
  const std::string whole = read_text("tokenizer.json");
  for (size_t length = 0; length + 2 < whole.size(); length += 101)
    CHECK_THROWS_AS(tokenizer_from_json(whole.substr(0, length)), BadTokenizer);
  CHECK_THROWS_AS(tokenizer_from_json(whole + "x"), BadTokenizer);
  TokenizerFiles files;
  CHECK_THROWS_AS(Tokenizer::load(files), NotFound);
  files.tokenizer_json = "/no/such/tokenizer.json";
  CHECK_THROWS_AS(Tokenizer::load(files), NotFound);
}

TEST_CASE("strings of JSON") {
  const auto read = [](const std::string& text) { return JsonReader(text, "file").string(); };
  CHECK(read(R"("a\n\u00e9\ud83d\ude00\/")") == "a\né😀/");
  for (const std::string bad : {R"("\ud83d")", R"("\ude00")", R"("\ud83dx")", R"("\u12")", R"("\x")", "\"a\nb\"",
                                "\"\xFF\"", "\"\\t\xC3\"", "\"abc", "\"abc\\", "1"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(read(bad), BadTokenizer);
  }
}

TEST_CASE("a broken tokenizer.model") {
  const std::string whole = read_text("tokenizer.model");
  for (size_t length = 0; length < whole.size(); length += 37) {
    // A cut between two fields leaves a model, with fewer pieces or without its settings.
    try {
      tokenizer_from_model(whole.substr(0, length));
    } catch (const BadTokenizer&) {
    }
  }
  for (size_t at = 0; at < whole.size(); at += 11) {
    std::string broken = whole;
    broken[at] = static_cast<char>(broken[at] ^ 0x80);
    try {
      tokenizer_from_model(broken).encode("The Eiffel Tower");
    } catch (const BadTokenizer&) {
    }
  }
  const auto model_refuses = [](const std::string& bytes, const char* message) {
    CHECK_THROWS_WITH_AS(tokenizer_from_model(bytes), doctest::Contains(message), BadTokenizer);
  };
  const std::string plain = std::string("\x18\x00\x20\x00\x28\x01", 6);
  CHECK(tokenizer_from_model(model_with(plain)).size() == 1);
  model_refuses("", "found 0");
  model_refuses(model_with(plain, 1), "unigram");
  model_refuses(model_with(""), "remove_extra_whitespaces");
  model_refuses(model_with(plain + field(2, "x")), "character map");
  model_refuses(model_with(std::string("\x18\x00\x20\x00\x28\x00", 6)), "escape_whitespaces");
  model_refuses(std::string(10, '\xFF') + "\x01", "64 bits");
  model_refuses("\x0A\xFF\xFF\xFF\xFF\x0F", "ends");
  model_refuses("\x0B\x00", "no protocol buffer");
}

TEST_CASE("a broken GGUF vocabulary") {
  const auto vocabulary_refuses = [](auto change, const char* message) {
    GgufVocabulary vocabulary = tiny_gguf_vocabulary();
    change(vocabulary);
    CHECK_THROWS_WITH_AS(tokenizer_from_gguf(vocabulary), doctest::Contains(message), BadTokenizer);
  };
  vocabulary_refuses([](GgufVocabulary& v) { v.model = "bert"; }, "bert");
  vocabulary_refuses([](GgufVocabulary& v) { v.types.pop_back(); }, "type");
  vocabulary_refuses([](GgufVocabulary& v) { v.tokens.clear(), v.types.clear(); }, "tokens");
  vocabulary_refuses([](GgufVocabulary& v) { v.merges = {"ab"}; }, "ab");
  vocabulary_refuses([](GgufVocabulary& v) { v.bos = 99999; }, "bos_token_id 99999");
  vocabulary_refuses([](GgufVocabulary& v) { v.unknown = -1; }, "unknown_token_id -1");
}

TEST_CASE("a tokenizer_config.json with values of the wrong kind") {
  CHECK_THROWS_AS(tiny_tokenizer("{}", R"({"bos_token": 2})"), BadTokenizer);
  CHECK_THROWS_AS(tiny_tokenizer("{}", R"({"add_bos_token": "yes"})"), BadTokenizer);
}
