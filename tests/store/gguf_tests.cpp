#include <cstring>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/gguf.h"
#include "store/files.h"
#include "store/gguf_builder.h"

using namespace gemloupe;
using namespace store_tests;

namespace {

GgufFile parse(const std::string& bytes) {
  return parse_gguf(in_memory(bytes, "dir/model.gguf"));
}

void refused(const std::string& bytes, std::initializer_list<std::string_view> parts) {
  const std::string message = message_of<BadCheckpoint>([&] { parse(bytes); });
  check_message(message, {"dir/model.gguf"});
  check_message(message, parts);
}

}  // namespace

TEST_CASE("gguf: a file that the Python package wrote") {
  const GgufFile file = read_gguf(tests_folder() / "data/gguf/metadata.gguf");
  const json& metadata = file.metadata;
  CHECK(metadata["general.architecture"] == "gemma3");
  CHECK(metadata["test.u8"] == 255);
  CHECK(metadata["test.i8"] == -128);
  CHECK(metadata["test.u16"] == 65535);
  CHECK(metadata["test.i16"] == -32768);
  CHECK(metadata["test.u32"] == 4294967295u);
  CHECK(metadata["test.i32"] == INT32_MIN);
  CHECK(metadata["test.u64"] == UINT64_MAX);
  CHECK(metadata["test.i64"] == INT64_MIN);
  CHECK(metadata["test.f32"] == 1.5);
  CHECK(metadata["test.f64"] == 0.1);
  CHECK(metadata["test.yes"] == true);
  CHECK(metadata["test.no"] == false);
  CHECK(metadata["test.text"] == "loupe ▁ 🔍");
  CHECK(metadata["test.ints"] == json({1, 2, 3}));
  CHECK(metadata["test.texts"] == json({"a", "", "ß"}));
  CHECK(!metadata.contains("tokenizer.ggml.tokens"));

  REQUIRE(file.vocabulary);
  const GgufVocabulary& vocabulary = *file.vocabulary;
  CHECK(vocabulary.model == "llama");
  CHECK(vocabulary.tokens.size() == 6);
  CHECK(vocabulary.tokens[5] == "a token longer than fifteen bytes");
  CHECK(vocabulary.scores == std::vector<float>{-1000, -1000, -1000, -1000, -1.5f, -2.5f});
  CHECK(vocabulary.types == std::vector<int32_t>{3, 3, 3, 2, 1, 1});
  CHECK(vocabulary.merges == std::vector<std::string>{"▁ a", "a a"});
  CHECK(vocabulary.bos == 2);
  CHECK(vocabulary.eos == 1);
  CHECK(vocabulary.unknown == 3);
  CHECK(vocabulary.padding == 0);
  CHECK(vocabulary.add_bos);
  CHECK(!vocabulary.add_eos);

  REQUIRE(file.tensors.size() == 2);
  CHECK(file.tensors[0].name == "cube");
  CHECK(file.tensors[0].shape == std::vector<int64_t>{2, 3, 4});
  CHECK(file.tensors[0].dtype == DType::F32);
  CHECK(file.tensors[1].shape == std::vector<int64_t>{3, 2});
  CHECK(file.tensors[1].dtype == DType::I64);
  int64_t last = 0;
  std::memcpy(&last, file.tensors[1].data + 40, sizeof(last));
  CHECK(last == 5);
}

TEST_CASE("gguf: versions 2 and 3, nested arrays, an alignment that misaligns") {
  GgufBuilder builder;
  builder.version = 2;
  builder.array(
      "nested", kArray, 2,
      bytes_of<uint32_t>(kU8) + bytes_of<uint64_t>(2) + "\x01\x02" + bytes_of<uint32_t>(kI16) + bytes_of<uint64_t>(0));
  builder.pair("general.alignment", kU32, bytes_of<uint32_t>(1));
  builder.tensor("scalar", {}, 0, 3);
  const GgufFile file = parse(builder.file(7, 1));
  CHECK(file.metadata["nested"].dump() == "[[1,2],[]]");
  CHECK(!file.vocabulary);
  REQUIRE(file.tensors.size() == 1);
  CHECK(file.tensors[0].bytes == 4);
  CHECK(reinterpret_cast<uintptr_t>(file.tensors[0].data) % 4 == 0);
  CHECK(std::memcmp(file.tensors[0].data, "\x03\x04\x05\x06", 4) == 0);
}

TEST_CASE("gguf: a wrong beginning") {
  refused("", {"cut short", "the magic 'GGUF'"});
  refused("PK\x03\x04", {"does not begin with 'GGUF'"});
  GgufBuilder builder;
  for (uint32_t version : {0u, 1u, 4u}) {
    builder.version = version;
    refused(builder.file(0), {"GGUF version " + std::to_string(version), "expected 2 or 3"});
  }
  builder.version = 3u << 24;
  refused(builder.file(0), {"big-endian"});
}

TEST_CASE("gguf: cut short anywhere") {
  const std::string whole = GgufBuilder()
                                .pair("a.text", kString, GgufBuilder::text("abc"))
                                .array("a.array", kF32, 2, std::string(8, '\0'))
                                .tensor("weight", {8, 2}, 0, 0)
                                .file(64);
  CHECK(parse(whole).tensors.size() == 1);
  for (size_t length = 0; length < whole.size(); ++length)
    CHECK_THROWS_AS(parse(whole.substr(0, length)), BadCheckpoint);
  refused(whole.substr(0, whole.size() - 1), {"tensor 'weight'", "cut short", "64", "63 bytes of data"});
}

TEST_CASE("gguf: counts that cannot be") {
  GgufBuilder many;
  many.tensors = uint64_t{1} << 60;
  refused(many.file(100), {"1152921504606846976 tensors"});
  many.tensors = 0;
  many.pairs = UINT64_MAX;
  refused(many.file(100), {"18446744073709551615 metadata keys"});

  refused(GgufBuilder().pair("k", kString, bytes_of(UINT64_MAX)).file(32), {"cut short", "'k'"});
  refused(GgufBuilder().array("k", kU64, uint64_t{1} << 61, "").file(32),
          {"'k' would have 2305843009213693952 elements"});
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"})
    refused(GgufBuilder().array(key, kString, uint64_t{1} << 40, "").file(32), {key, "1099511627776 elements"});
  refused(GgufBuilder().array("k", kU8, (1 << 24) + 1, std::string((1 << 24) + 1, 'x')).file(0), {"'k'", "at most"});
}

TEST_CASE("gguf: metadata that is wrong") {
  refused(GgufBuilder().pair("k", 13, "").file(32), {"'k' has type 13", "0 to 12"});
  refused(GgufBuilder().array("k", 99, 0, "").file(32), {"the elements of 'k' has type 99"});
  refused(GgufBuilder().pair("k", kU8, "a").pair("k", kU8, "a").file(32), {"'k' is there twice"});
  refused(GgufBuilder().pair("\xff", kU8, "a").file(32), {"metadata key 0", "'\\xff'", "UTF-8"});
  refused(GgufBuilder().pair("k", kString, GgufBuilder::text("\xff")).file(32), {"'k'", "'\\xff'", "UTF-8"});
  std::string nested;
  for (int i = 0; i < 1000; ++i) nested += bytes_of<uint32_t>(kArray) + bytes_of<uint64_t>(1);
  refused(GgufBuilder().pair("k", kArray, nested).file(32), {"'k' nests deeper than 8"});
}

TEST_CASE("gguf: vocabularies that are wrong") {
  const std::string two = GgufBuilder::text("a") + GgufBuilder::text("b");
  GgufBuilder builder;
  builder.array("tokenizer.ggml.tokens", kString, 2, two);
  SUBCASE("scores for another number of tokens") {
    builder.array("tokenizer.ggml.scores", kF32, 1, std::string(4, '\0'));
    refused(builder.file(32), {"has 2 elements", "'tokenizer.ggml.scores' has 1"});
  }
  SUBCASE("types for another number of tokens") {
    builder.array("tokenizer.ggml.token_type", kI32, 3, std::string(12, '\0'));
    refused(builder.file(32), {"has 2 elements", "'tokenizer.ggml.token_type' has 3"});
  }
  SUBCASE("an array of another type") {
    builder.array("tokenizer.ggml.scores", kF64, 2, std::string(16, '\0'));
    refused(builder.file(32), {"'tokenizer.ggml.scores' has elements of type 12, expected 6"});
  }
  SUBCASE("merges that are numbers") {
    builder.array("tokenizer.ggml.merges", kU8, 2, "ab");
    refused(builder.file(32), {"'tokenizer.ggml.merges' has elements of type 0", "string"});
  }
  SUBCASE("scalars of another kind") {
    refused(builder.pair("tokenizer.ggml.bos_token_id", kString, GgufBuilder::text("x")).file(32),
            {"'tokenizer.ggml.bos_token_id' is \"x\"", "a token id"});
  }
  SUBCASE("flags of another kind") {
    refused(builder.pair("tokenizer.ggml.add_bos_token", kU8, "a").file(32),
            {"'tokenizer.ggml.add_bos_token' is 97", "true or false"});
  }
  SUBCASE("bytes that are no UTF-8 are tokens all the same") {
    GgufBuilder raw;
    raw.array("tokenizer.ggml.tokens", kString, 1, GgufBuilder::text("\xff"));
    CHECK(parse(raw.file(0)).vocabulary->tokens[0] == "\xff");
  }
}

TEST_CASE("gguf: tensors that are wrong") {
  auto one = [](const std::vector<uint64_t>& shape, uint32_t type, uint64_t offset) {
    return GgufBuilder().tensor("w", shape, type, offset).file(1024);
  };
  refused(one({1, 1, 1, 1, 1}, 0, 0), {"tensor 'w' has 5 dimensions", "at most 4"});
  refused(one({UINT64_MAX}, 0, 0), {"tensor 'w'", "18446744073709551615"});
  refused(one({1ull << 32, 1ull << 32}, 0, 0), {"tensor 'w'", "too large"});
  refused(one({1ull << 61, 2}, 0, 0), {"tensor 'w'", "too large"});
  refused(one({255}, 12, 0), {"tensor 'w'", "Q4_K cannot have the shape [255]", "no multiple of 256"});
  refused(one({8}, 0, 4), {"tensor 'w' begins at 4", "a multiple of 32"});
  refused(one({8}, 0, UINT64_MAX - 31), {"tensor 'w'", "ends beyond"});
  refused(one({8}, 0, 1ull << 62), {"tensor 'w'", "cut short"});
  refused(one({256}, 20, 0), {"tensor 'w' has ggml type 20 (IQ4_NL)", "gemloupe reads"});
  refused(one({256}, 77, 0), {"tensor 'w' has ggml type 77;", "gemloupe reads"});
  refused(GgufBuilder().tensor("\xff", {8}, 0, 0).file(1024), {"the name of tensor 0", "'\\xff'", "UTF-8"});
  refused(GgufBuilder().tensor("w", {8}, 0, 0).tensor("w", {8}, 0, 32).file(64), {"tensor 'w' is there twice"});
  refused(GgufBuilder().tensor("v", {16}, 0, 0).tensor("w", {8}, 0, 32).file(64), {"'v' and 'w' overlap"});
}

TEST_CASE("gguf: an alignment that is wrong") {
  for (uint32_t alignment : {0u, 3u, 1u << 31})
    refused(GgufBuilder().pair("general.alignment", kU32, bytes_of(alignment)).file(32),
            {"'general.alignment' is " + std::to_string(alignment), "a power of two"});
  refused(GgufBuilder().pair("general.alignment", kI32, bytes_of(-32)).file(32), {"'general.alignment' is -32"});
}

namespace {

/// Part `number` of `count`, with one tensor.
std::string part(uint16_t number, uint16_t count, const char* tensor, int32_t tensors = 2) {
  return GgufBuilder()
      .pair("split.no", kU16, bytes_of<uint16_t>(static_cast<uint16_t>(number - 1)))
      .pair("split.count", kU16, bytes_of(count))
      .pair("split.tensors.count", kI32, bytes_of(tensors))
      .pair("part", kU16, bytes_of(number))
      .tensor(tensor, {8}, 0, 0)
      .file(32);
}

}  // namespace

TEST_CASE("gguf: a model in several files is read whole, whichever is named") {
  TempFolder folder;
  const fs::path one = folder.add("m-00001-of-00002.gguf", part(1, 2, "a"));
  const fs::path two = folder.add("m-00002-of-00002.gguf", part(2, 2, "b"));
  CHECK(!is_later_gguf_split(one));
  CHECK(is_later_gguf_split(two));
  for (const fs::path& path : {one, two}) {
    const GgufFile file = read_gguf(path);
    CHECK(file.metadata["part"] == 1);
    REQUIRE(file.tensors.size() == 2);
    CHECK(file.tensors[1].path.filename() == "m-00002-of-00002.gguf");
  }

  SUBCASE("a tensor twice") {
    folder.add("m-00002-of-00002.gguf", part(2, 2, "a"));
    CHECK_REFUSED(BadCheckpoint, read_gguf(one), one.c_str(), "tensor 'a' is in two files", "'m-00002-of-00002.gguf'");
  }
  SUBCASE("another number of tensors") {
    folder.add("m-00001-of-00002.gguf", part(1, 2, "a", 3));
    CHECK_REFUSED(BadCheckpoint, read_gguf(one), one.c_str(), "2 tensors, expected 3");
  }
  SUBCASE("a missing part") {
    fs::remove(two);
    CHECK_REFUSED(BadCheckpoint, read_gguf(one), one.c_str(), "one of 2 files", "'m-00002-of-00002.gguf' is missing");
  }
  SUBCASE("a name that was changed") {
    for (const char* name : {"m.gguf", "m-00001-of-00003.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf"})
      CHECK_REFUSED(BadCheckpoint, read_gguf(folder.add(name, part(1, 2, "a"))), name, "names should end with");
  }
}
