#include "gemloupe/base/errors.h"
#include "gemloupe/store/checkpoint.h"
#include "gemloupe/store/safetensors.h"
#include "store/files.h"
#include "store/gguf_builder.h"

using namespace gemloupe;
using namespace store_tests;

namespace {

/// A folder with a config, a tensor "w" of [1, 2], and a tokenizer.
struct Model {
  TempFolder folder;
  std::string path = folder.path().string();

  Model() {
    folder.add("config.json", R"({"model_type": "gemma3_text", "hidden_size": 2})");
    weights("model.safetensors", 2);
  }

  void weights(const char* file, float second) const {
    const float values[] = {1, second};
    const ArrayToWrite array{"w", DType::F32, {1, 2}, reinterpret_cast<const std::byte*>(values)};
    write_safetensors(folder.path() / file, {&array, 1});
  }

  void remove(const char* file) const { fs::remove(folder.path() / file); }
  Checkpoint open() const { return Checkpoint::open(path); }
};

}  // namespace

TEST_CASE("checkpoint: a folder") {
  const Model model;
  const Checkpoint checkpoint = model.open();
  CHECK(checkpoint.path() == model.path);
  CHECK(checkpoint.config()["hidden_size"] == 2);
  CHECK(checkpoint.generation_config().is_null());
  CHECK(!checkpoint.is_gguf());
  REQUIRE(checkpoint.tensors().size() == 1);
  REQUIRE(checkpoint.find("w"));
  CHECK(checkpoint.find("w")->shape == std::vector<int64_t>{1, 2});
  CHECK(!checkpoint.find("v"));
  CHECK(!checkpoint.find("x"));
  CHECK(!checkpoint.tokenizer_files().tokenizer_json);
  CHECK(checkpoint.tokenizer_files().tokenizer_config.is_null());
}

TEST_CASE("checkpoint: edits in place stay in the process") {
  const Model model;
  const std::string before = content(model.folder.path() / "model.safetensors");
  const Checkpoint checkpoint = model.open();
  checkpoint.find("w")->data[0] = std::byte{77};
  CHECK(content(model.folder.path() / "model.safetensors") == before);
  CHECK(model.open().digest() == checkpoint.digest());
}

TEST_CASE("checkpoint: a digest names the content, however it is spread over files") {
  const Model model;
  const std::string digest = model.open().digest();
  CHECK(digest.size() == 32);
  CHECK(digest.find_first_not_of("0123456789abcdef") == std::string::npos);
  model.remove("model.safetensors");
  model.weights("one.safetensors", 2);
  CHECK(model.open().digest() == digest);
  model.weights("one.safetensors", 3);
  CHECK(model.open().digest() != digest);
  model.weights("one.safetensors", 2);
  model.folder.add("config.json", R"({"model_type": "gemma3_text", "hidden_size": 3})");
  CHECK(model.open().digest() != digest);
}

TEST_CASE("checkpoint: every way to name the weights") {
  const Model model;
  SUBCASE("a file") {
    CHECK(Checkpoint::open(model.path + "/model.safetensors").find("w"));
  }
  SUBCASE("the only .safetensors file") {
    fs::rename(model.folder.path() / "model.safetensors", model.folder.path() / "other.safetensors");
    CHECK(model.open().find("w"));
  }
  SUBCASE("model.safetensors wins over others") {
    model.weights("other.safetensors", 2);
    CHECK(model.open().find("w")->path.filename() == "model.safetensors");
  }
  SUBCASE("shards") {
    fs::rename(model.folder.path() / "model.safetensors", model.folder.path() / "one.safetensors");
    model.folder.add("model.safetensors.index.json", R"({"weight_map": {"w": "one.safetensors"}})");
    CHECK(model.open().find("w"));
    CHECK_REFUSED(BadCheckpoint, Checkpoint::open(model.path + "/one.safetensors"), "one shard of several",
                  "pass the folder");
  }
  SUBCASE("no weights, when none are asked for") {
    model.remove("model.safetensors");
    CHECK(Checkpoint::open(model.path, std::nullopt, Checkpoint::Weights::Optional).tensors().empty());
  }
}

TEST_CASE("checkpoint: a GGUF file, also as the only one of a folder") {
  TempFolder folder;
  const std::string bytes = GgufBuilder()
                                .pair("general.architecture", kString, GgufBuilder::text("gemma3"))
                                .pair("tokenizer.chat_template", kString, GgufBuilder::text("{{ x }}"))
                                .array("tokenizer.ggml.tokens", kString, 1, GgufBuilder::text("a"))
                                .tensor("w", {8}, 0, 0)
                                .file(32);
  const std::string path = folder.add("m.gguf", bytes).string();
  for (const std::string& name : {path, folder.path().string(), folder.add("no_extension", bytes).string()}) {
    const Checkpoint checkpoint = Checkpoint::open(name);
    CHECK(checkpoint.is_gguf());
    CHECK(checkpoint.config().is_null());
    CHECK(checkpoint.gguf_metadata()["general.architecture"] == "gemma3");
    CHECK(checkpoint.find("w"));
    CHECK(checkpoint.tokenizer_files().gguf->tokens.size() == 1);
    CHECK(checkpoint.tokenizer_files().chat_template == "{{ x }}");
  }
  folder.add("n.gguf", bytes);
  CHECK_REFUSED(BadCheckpoint, Checkpoint::open(folder.path()), "several GGUF files", "'m.gguf'", "'n.gguf'");
}

TEST_CASE("checkpoint: tokenizer files and chat templates") {
  const Model model;
  model.folder.add("tokenizer_config.json",
                   R"({"bos_token": "<bos>", "added_tokens_decoder": {"0": {}}, "chat_template": "from config"})");
  CHECK(model.open().tokenizer_files().tokenizer_config.contains("added_tokens_decoder"));
  CHECK(model.open().tokenizer_files().chat_template == "from config");

  model.folder.add("tokenizer.json", "{}");
  model.folder.add("tokenizer.model", "");
  const TokenizerFiles files = model.open().tokenizer_files();
  CHECK(files.tokenizer_json->filename() == "tokenizer.json");
  CHECK(files.tokenizer_model->filename() == "tokenizer.model");
  CHECK(files.tokenizer_config["bos_token"] == "<bos>");
  CHECK(!files.tokenizer_config.contains("added_tokens_decoder"));

  model.folder.add("tokenizer_config.json", R"({"chat_template": [{"name": "tool", "template": "t"},
                                               {"name": "default", "template": "d"}]})");
  CHECK(model.open().tokenizer_files().chat_template == "d");
  model.folder.add("tokenizer_config.json", R"({"chat_template": [{"name": "tool", "template": "t"}, 3]})");
  CHECK(!model.open().tokenizer_files().chat_template);
  model.folder.add("chat_template.json", R"({"chat_template": "from json"})");
  CHECK(model.open().tokenizer_files().chat_template == "from json");
  model.folder.add("chat_template.jinja", "from jinja");
  CHECK(model.open().tokenizer_files().chat_template == "from jinja");

  model.remove("chat_template.jinja");
  model.folder.add("chat_template.json", R"({"chat_template": 3})");
  CHECK_REFUSED(BadCheckpoint, model.open(), "chat_template.json", "'chat_template' is number");
}

TEST_CASE("checkpoint: a hub id; a path of that name wins") {
  TempFolder cache;
  const Variable variable("HF_HUB_CACHE", cache.path().c_str());
  const fs::path snapshot = cache.path() / "models--org--name/snapshots/c0ffee";
  cache.add("models--org--name/refs/main", "c0ffee");
  cache.add(snapshot / "config.json", "{}");
  const Model model;
  fs::create_symlink(model.folder.path() / "model.safetensors", snapshot / "model.safetensors");
  CHECK(Checkpoint::open("org/name").path() == snapshot);
  CHECK(Checkpoint::open("org/name", "c0ff").path() == snapshot);

  const fs::path here = fs::current_path();
  fs::create_directories(cache.path() / "here/org/name");
  fs::current_path(cache.path() / "here");
  CHECK_REFUSED(BadCheckpoint, Checkpoint::open("org/name"), "org/name", "has no config.json");
  fs::current_path(here);
}

TEST_CASE("checkpoint: what is not there, or is no checkpoint, is refused by name") {
  const Variable cache("HF_HUB_CACHE", "/nowhere");
  const Model model;
  const std::string path = model.path;
  CHECK_REFUSED(NotFound, Checkpoint::open(""), "empty");
  CHECK_REFUSED(NotFound, Checkpoint::open("/no/such/folder"), "'/no/such/folder'", "hub id such as");
  CHECK_REFUSED(NotFound, Checkpoint::open("model.gguf"), "'model.gguf'", "no such file");
  CHECK_REFUSED(NotFound, Checkpoint::open("google/gemma-x"), "'google/gemma-x'", "/nowhere", "hf download");
  CHECK_REFUSED(BadCheckpoint, Checkpoint::open(model.folder.add("x.txt", "hello")), "x.txt", "no GGUF file");

  SUBCASE("no weights") {
    model.remove("model.safetensors");
    CHECK_REFUSED(BadCheckpoint, model.open(), path, "no weights", "model.safetensors");
  }
  SUBCASE("pickles only") {
    model.remove("model.safetensors");
    model.folder.add("pytorch_model.bin", "");
    CHECK_REFUSED(BadCheckpoint, model.open(), path, "'pytorch_model.bin'", "pickle can run code", "save_pretrained");
  }
  SUBCASE("several files and no index") {
    model.remove("model.safetensors");
    model.weights("a.safetensors", 1);
    model.weights("b.safetensors", 1);
    CHECK_REFUSED(BadCheckpoint, model.open(), path, "'a.safetensors' and 'b.safetensors'", "index.json");
  }
  SUBCASE("no config") {
    model.remove("config.json");
    CHECK_REFUSED(BadCheckpoint, model.open(), path, "no config.json");
    CHECK_REFUSED(BadCheckpoint, Checkpoint::open(path + "/model.safetensors"), path, "no config.json");
    model.folder.add("adapter_config.json", "{}");
    CHECK_REFUSED(BadCheckpoint, model.open(), path, "adapter", "merge it");
  }
  SUBCASE("broken JSON") {
    model.folder.add("config.json", "{\"a\": 1,\n \"b\": }");
    CHECK_REFUSED(BadCheckpoint, model.open(), path + "/config.json", "line 2, column 7");
    model.folder.add("config.json", "[]");
    CHECK_REFUSED(BadCheckpoint, model.open(), path + "/config.json", "expected a JSON object, found array");
    model.folder.add("config.json", "");
    CHECK_REFUSED(BadCheckpoint, model.open(), path + "/config.json", "not valid JSON");
  }
}
