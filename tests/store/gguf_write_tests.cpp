#include <stdexcept>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/gguf_write.h"
#include "store/files.h"
#include "store/gguf_builder.h"

using namespace gemloupe;
using namespace store_tests;

namespace {

StoredTensor described(const std::string& name, DType dtype, std::vector<int64_t> shape) {
  StoredTensor tensor;
  tensor.name = name, tensor.dtype = dtype, tensor.shape = std::move(shape);
  return tensor;
}

void write(const fs::path& path, const GgufFile& contents, const std::vector<std::string>& elements) {
  GgufWriter writer(path, contents);
  for (const std::string& bytes : elements) writer.write(bytes.data(), bytes.size());
  writer.commit();
}

GgufVocabulary small_vocabulary() {
  GgufVocabulary v;
  v.model = "llama";
  v.tokens = {"<bos>", "\xFF", "▁a"};
  v.scores = {-1000, 0, -1.5};
  v.types = {3, 6, 1};
  v.merges = {"▁ a"};
  v.bos = 0, v.padding = 2, v.add_bos = false, v.add_space_prefix = true;
  return v;
}

}  // namespace

TEST_CASE("gguf writer: byte for byte") {
  const TempFolder folder;
  GgufFile contents;
  contents.metadata["general.architecture"] = "gemma3";
  contents.metadata["gemma3.block_count"] = 7;
  contents.metadata["gemma3.eps"] = 1e-6;
  contents.tensors = {described("z", DType::F32, {1, 2}), described("a", DType::Q8_0, {1, 32})};
  write(folder.path() / "m.gguf", contents, {std::string(8, '\1'), std::string(34, '\2')});
  GgufBuilder builder;
  builder.pair("general.architecture", kString, GgufBuilder::text("gemma3"));
  builder.pair("gemma3.block_count", kU32, bytes_of<uint32_t>(7));
  builder.pair("gemma3.eps", kF32, bytes_of(1e-6f));
  builder.tensor("z", {2, 1}, 0, 0).tensor("a", {32, 1}, 8, 32);
  std::string data(96, '\0');
  data.replace(0, 8, 8, '\1').replace(32, 34, 34, '\2');
  CHECK(content(folder.path() / "m.gguf") == builder.file(0) + data);
}

TEST_CASE("gguf writer: what is written is read") {
  const TempFolder folder;
  const fs::path path = folder.path() / "m.gguf";
  GgufFile contents;
  contents.metadata = {
      {"general.architecture", "gemma4"}, {"yes", true},           {"no", false},          {"small", -5},
      {"large", int64_t{1} << 40},        {"smallest", INT64_MIN}, {"real", 0.5},          {"text", "ß ▁"},
      {"flags", {true, false}},           {"numbers", {1, 2, 3}},  {"none", json::array()}};
  contents.vocabulary = small_vocabulary();
  contents.tensors = {described("b", DType::BF16, {3}), described("empty", DType::F32, {0, 4}),
                      described("a", DType::F16, {2, 2, 2}), described("scalar", DType::F32, {})};
  write(path, contents, {"bbbbbb", "aaaaaaaaaaaaaaaa", "ssss"});
  const GgufFile read = read_gguf(path);
  for (const auto& [key, value] : contents.metadata.items()) {
    CAPTURE(key);
    CHECK(read.metadata[key] == value);
  }
  CHECK(read.metadata["tokenizer.ggml.bos_token_id"] == 0);
  CHECK(!read.metadata.contains("tokenizer.ggml.eos_token_id"));
  REQUIRE(read.vocabulary);
  CHECK(read.vocabulary->tokens == contents.vocabulary->tokens);
  CHECK(read.vocabulary->scores == contents.vocabulary->scores);
  CHECK(read.vocabulary->types == contents.vocabulary->types);
  CHECK(read.vocabulary->merges == contents.vocabulary->merges);
  CHECK(read.vocabulary->padding == 2);
  CHECK(!read.vocabulary->add_bos);
  CHECK(read.vocabulary->add_space_prefix);
  REQUIRE(read.tensors.size() == 4);
  CHECK(read.tensors[0].name == "a");
  CHECK(read.tensors[0].shape == std::vector<int64_t>{2, 2, 2});
  CHECK(std::string(reinterpret_cast<const char*>(read.tensors[1].data), 6) == "bbbbbb");
  CHECK(read.tensors[2].bytes == 0);
  CHECK(fs::file_size(path) % 32 == 0);
}

TEST_CASE("gguf writer: elements come in parts, and nothing is there before the commit") {
  const TempFolder folder;
  const fs::path path = folder.path() / "m.gguf";
  GgufFile contents;
  contents.tensors = {described("a", DType::F32, {4}), described("b", DType::F32, {1})};
  {
    GgufWriter writer(path, contents);
    writer.write("aaaaaaaa", 8);
    CHECK_THROWS_AS(writer.write("aaaaaaaabbbb", 12), InternalError);  // over the end of a tensor
    writer.write("aaaaaaaa", 8);
    CHECK_THROWS_AS(writer.commit(), InternalError);  // b is missing
  }
  CHECK(folder.count() == 0);
  write(path, contents, {"aaaaaaaa", "aaaaaaaa", "bb", "bb"});
  CHECK(read_gguf(path).tensors.size() == 2);
}

TEST_CASE("gguf writer: what it refuses") {
  const TempFolder folder;
  GgufFile contents;
  contents.tensors = {described("a", DType::Q8_0, {2, 33})};
  CHECK_REFUSED(CannotWrite, GgufWriter(folder.path() / "m.gguf", contents), "m.gguf", "'a'", "[2, 33]", "Q8_0");
  CHECK_REFUSED(CannotWrite, GgufWriter(folder.path() / "none/m.gguf", GgufFile()), "m.gguf", "does not exist");
  contents.tensors = {described("a", DType::Bool, {2})};
  CHECK_THROWS_AS(GgufWriter(folder.path() / "m.gguf", contents), InternalError);
  contents.tensors.clear();
  for (const json& wrong : {json(), json{{"an", "object"}}, json{1, "two"}}) {
    contents.metadata["key"] = wrong;
    CHECK_THROWS_AS(GgufWriter(folder.path() / "m.gguf", contents), InternalError);
  }
  CHECK(folder.count() == 0);
}

TEST_CASE("a checkpoint of what a GGUF file says, without the file") {
  GgufFile contents;
  contents.metadata["tokenizer.chat_template"] = "{{ bos_token }}";
  contents.vocabulary = small_vocabulary();
  contents.tensors = {described("b", DType::F32, {2}), described("a", DType::F32, {3})};
  const Checkpoint checkpoint = Checkpoint::of_gguf(contents, "m.gguf");
  CHECK(checkpoint.is_gguf());
  CHECK(checkpoint.find("a")->shape == std::vector<int64_t>{3});
  CHECK(!checkpoint.find("c"));
  CHECK(checkpoint.tokenizer_files().gguf->tokens.size() == 3);
  CHECK(checkpoint.tokenizer_files().chat_template == "{{ bos_token }}");
}
