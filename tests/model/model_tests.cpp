#include <ATen/Parallel.h>

#include "gemloupe/base/errors.h"
#include "gemloupe/model.h"
#include "run/tiny_model.h"

using namespace run_tests;
using store_tests::check_message;
using store_tests::message_of;
using store_tests::tests_folder;
using store_tests::Variable;

namespace {

/// A checkpoint with the small tokenizer of tests/data/text, and room for its ids.
struct Folder {
  TempFolder folder;
  json config = tiny_config({{"vocab_size", 1100}});
  Tensors tensors = random_weights(*tiny_plan(config));

  Folder() { write(); }

  void write() { write_checkpoint(folder, config, tensors); }
  void change(const json& changes) {
    config.update(changes);
    folder.add("config.json", config.dump());
  }
  void add_tokenizer() const {
    std::filesystem::copy(tests_folder() / "data/text/tokenizer.json", folder.path() / "tokenizer.json");
  }
  std::string path() const { return folder.path().string(); }
  Model load(const LoadOptions& options = {}) const { return Model::load(path(), options); }
};

const Prompt& some_prompt() {
  static const Prompt some = prompt({some_ids(6)});
  return some;
}

LoadOptions with(const std::function<void(LoadOptions&)>& change) {
  LoadOptions options;
  change(options);
  return options;
}

}  // namespace

TEST_CASE("model: loaded from a folder, it runs") {
  const Folder disk;
  const Model model = disk.load();
  CHECK(model.path() == disk.path());
  CHECK(model.attn_implementation() == "sdpa");
  CHECK(!model.eager());
  CHECK(model.plan().num_layers() == 3);
  CHECK((model.weights().dtype() == at::kFloat));
  CHECK(model.weights().device().is_cpu());
  CHECK(model.plan().config.text("dtype") == "float32");
  Trace trace = model.trace(some_prompt());
  CHECK(trace.read("logits").sizes() == at::IntArrayRef({1, 6, 1100}));
  CHECK(disk.load(with([](auto& o) { o.attn_implementation = "eager"; })).eager());
}

TEST_CASE("model: the dtype is the one asked for, else the config's, else the file's") {
  Folder disk;
  for (auto& [name, tensor] : disk.tensors) tensor = tensor.to(at::kBFloat16);
  disk.write();
  CHECK((disk.load().weights().dtype() == at::kBFloat16));
  CHECK((disk.load(with([](auto& o) { o.dtype = "float32"; })).weights().dtype() == at::kFloat));
  disk.change({{"torch_dtype", "float16"}});
  CHECK((disk.load().weights().dtype() == at::kHalf));
  CHECK(disk.load().plan().config.text("dtype") == "float16");
  CHECK(disk.load(with([](auto& o) { o.dtype = "torch.bfloat16"; })).plan().config.text("dtype") == "bfloat16");
}

TEST_CASE("model: bad options are refused before anything is read") {
  auto refused = [](const LoadOptions& options, std::initializer_list<std::string_view> parts) {
    check_message(message_of<BadOption>([&] { Model::load("/no/such/folder", options); }), parts);
  };
  refused(with([](auto& o) { o.dtype = "int8"; }), {"'int8'", "'bfloat16'"});
  refused(with([](auto& o) { o.dtype = ""; }), {"''"});
  for (const char* device : {"", "gpu", "cpu:x", "meta", "cuda:-1", "mps", "cpu:1"})
    refused(with([&](auto& o) { o.device = device; }), {"device '" + std::string(device) + "'"});
  refused(with([](auto& o) { o.device = "cuda:99"; }), {"device 'cuda:99' is not there"});
  refused(with([](auto& o) { o.attn_implementation = "flash"; }), {"'flash'", "'eager'", "'sdpa'"});
  for (const char* cap : {"", "0", "-30", "nan", "inf", "30x", "thirty", "Default"})
    refused(with([&](auto& o) { o.final_logit_softcapping = cap; }),
            {"final_logit_softcapping '" + std::string(cap) + "'", "a number above 0"});
  refused(with([](auto& o) { o.threads = 0; }), {"threads", "it is 0"});
  refused(with([](auto& o) { o.threads = -3; }), {"threads", "it is -3"});
}

TEST_CASE("model: threads") {
  const Folder disk;
  const int before = at::get_num_threads();
  disk.load(with([](auto& o) { o.threads = 1; }));
  CHECK(at::get_num_threads() == 1);
  disk.load();
  CHECK(at::get_num_threads() == 1);
  at::set_num_threads(before);
}

TEST_CASE("model: checkpoints that are not there, or not whole") {
  Folder disk;
  SUBCASE("no such folder, no such id") {
    const Variable cache("HF_HUB_CACHE", disk.folder.path().c_str());
    CHECK_REFUSED(NotFound, Model::load("/no/such/folder"), "/no/such/folder");
    CHECK_REFUSED(NotFound, Model::load("google/gemma-3-270m"), "google/gemma-3-270m", disk.path());
  }
  SUBCASE("no config.json") {
    std::filesystem::remove(disk.folder.path() / "config.json");
    CHECK_REFUSED(BadCheckpoint, disk.load(), disk.path(), "config.json");
  }
  SUBCASE("no weights") {
    std::filesystem::remove(disk.folder.path() / "model.safetensors");
    CHECK_REFUSED(BadCheckpoint, disk.load(), disk.path(), "weights");
  }
  SUBCASE("a file cut short") {
    std::filesystem::resize_file(disk.folder.path() / "model.safetensors", 10'000);
    CHECK_REFUSED(BadCheckpoint, disk.load(), "model.safetensors");
  }
  SUBCASE("a config that is no JSON") {
    disk.folder.add("config.json", "{\"model_type\": ");
    CHECK_REFUSED(BadCheckpoint, disk.load(), "config.json");
  }
  SUBCASE("no family, or one that there is not") {
    disk.change({{"model_type", "llama"}});
    CHECK_REFUSED(BadConfig, disk.load(), "config.json", "'llama'", "'gemma3_text'");
    disk.change({{"model_type", 3}});
    CHECK_REFUSED(BadConfig, disk.load(), "config.json", "'model_type'");
    disk.config.erase("model_type");
    disk.change(json::object());
    CHECK_REFUSED(BadConfig, disk.load(), "config.json", "'model_type'");
  }
  SUBCASE("a key without a meaning, and the way round") {
    disk.change({{"rope_scalling", nullptr}});
    CHECK_REFUSED(BadConfig, disk.load(), "config.json", "'rope_scalling'", "'rope_scaling'", "ignore_config_keys");
    CHECK_NOTHROW(disk.load(with([](auto& o) { o.ignore_config_keys = {"rope_scalling"}; })));
  }
  SUBCASE("a config that contradicts the weights") {
    disk.change({{"intermediate_size", 44}});
    CHECK_REFUSED(BadCheckpoint, disk.load(), "model.safetensors", "[40, 32]", "[44, 32]");
    disk.change({{"intermediate_size", 40}, {"num_hidden_layers", 4}});
    CHECK_REFUSED(BadCheckpoint, disk.load(), "'model.layers.3.input_layernorm.weight'", "missing");
  }
  SUBCASE("a dtype that libtorch has, but no model") {
    disk.change({{"torch_dtype", "int8"}});
    CHECK_REFUSED(BadConfig, disk.load(), "config.json", "'int8'");
  }
}

TEST_CASE("model: a GGUF whose architecture is no text, or no family") {
  const TempFolder folder;
  for (const auto& [type, value] : {std::pair<uint32_t, std::string>{4, std::string("\x07\0\0\0", 4)},
                                    {8, std::string("\x05\0\0\0\0\0\0\0llama", 13)}}) {
    std::string file = "GGUF";
    auto add = [&](auto number) { file += store_tests::bytes_of(number); };
    const std::string key = "general.architecture";
    add(uint32_t{3}), add(uint64_t{0}), add(uint64_t{1}), add(uint64_t{key.size()});
    file += key;
    add(type);
    file += value;
    const std::string path = folder.add("m.gguf", file).string();
    CHECK_REFUSED(BadConfig, Model::load(path), "m.gguf", "general.architecture", "'gemma3'");
  }
}

TEST_CASE("model: project_on_vocab of the last block is the logits") {
  Folder disk;
  for (const char* attention : {"", "eager"})
    for (const char* cap : {"default", "none", "5"})
      for (const char* dtype : {"float32", "bfloat16"}) {
        const Model model = disk.load(with([&](auto& o) {
          o.attn_implementation = attention;
          o.final_logit_softcapping = cap;
          o.dtype = dtype;
        }));
        Trace trace = model.trace(some_prompt());
        const at::Tensor hidden = trace.read("layers.2.layer_output").clone(), logits = trace.read("logits");
        const at::Tensor projected = model.project_on_vocab(hidden);
        CHECK(same_bits(projected, logits));
        CHECK(same_bits(model.project_on_vocab(hidden.to(at::kDouble)), logits));
        const at::Tensor one = model.project_on_vocab(hidden[0][5]);
        CHECK(one.sizes() == at::IntArrayRef({1100}));
        CHECK(distance(one, logits[0][5]) < (std::string(dtype) == "float32" ? 1e-4 : 0.1));
        CHECK(model.project_on_vocab(hidden.unsqueeze(0)).sizes() == at::IntArrayRef({1, 1, 6, 1100}));
      }
  const Model model = disk.load();
  CHECK_REFUSED(BadValue, model.project_on_vocab(at::zeros({3, 31})), "[..., 32]");
  CHECK_THROWS_AS(model.project_on_vocab(at::zeros({})), BadValue);
  CHECK_THROWS_AS(model.project_on_vocab(at::Tensor()), BadValue);
}

TEST_CASE("model: the cap is the model's, the caller's, or none") {
  const Folder disk;  // its config says 30
  auto largest = [&](const char* cap) {
    const Model model = disk.load(with([&](auto& o) { o.final_logit_softcapping = cap; }));
    return model.project_on_vocab(at::ones({32}) * 1e3).abs().max().item<double>();
  };
  CHECK(largest("default") == largest("config"));
  CHECK(largest("default") <= 30);
  CHECK(largest("0.5") <= 0.5);
  CHECK(largest("none") != largest("default"));
}

TEST_CASE("model: the tokenizer is made when it is first asked for") {
  Folder disk;
  SUBCASE("there is none: everything but text works") {
    const Model model = disk.load();
    CHECK(model.trace(some_prompt()).read("logits").defined());
    CHECK_THROWS_AS(model.tokenizer(), NotFound);
    CHECK_THROWS_AS(model.trace("a text"), NotFound);
    CHECK_THROWS_AS(model.tokenizer(), NotFound);  // again, not something half-made
  }
  SUBCASE("it is broken: the same") {
    disk.folder.add("tokenizer.json", "{\"model\": 3}");
    const Model model = disk.load();
    CHECK(model.trace(some_prompt()).read("logits").defined());
    CHECK_THROWS_AS(model.tokenizer(), BadTokenizer);
    CHECK_THROWS_AS(model.prompt("a text"), BadTokenizer);
  }
  SUBCASE("it is good") {
    disk.add_tokenizer();
    const Model model = disk.load(), copy = model;
    CHECK(&model.tokenizer() == &copy.tokenizer());  // once, also for copies
    const at::Tensor ids = model.prompt("the cat").ids;
    CHECK(ids.dim() == 2);
    CHECK(ids[0][0].item<int64_t>() == 2);
    CHECK(same_bits(model.prompt("<bos>the cat").ids, ids));
    CHECK(model.prompt("").ids.numel() == 1);  // <bos> alone
    Trace trace = model.trace("the cat");
    CHECK(same_bits(trace.read("input_ids"), ids));
    CHECK(trace.read("next_token_probs").size(1) == 1100);
  }
  SUBCASE("it has ids that the model does not: said so, not read past the table") {
    disk.add_tokenizer();
    disk.config = tiny_config();
    disk.tensors = random_weights(*tiny_plan(disk.config));
    disk.write();
    CHECK_REFUSED(BadPrompt, disk.load().trace("the cat"), "input_ids[0,", "0 to 60");
  }
}

TEST_CASE("model: a plan without weights") {
  Folder disk;
  std::filesystem::remove(disk.folder.path() / "model.safetensors");
  const Checkpoint bare = Checkpoint::open(disk.path(), std::nullopt, Checkpoint::Weights::Optional);
  const Plan of_config = plan_of(disk.config, "config.json");
  CHECK(of_config.rows.size() == tiny_plan(disk.config)->rows.size());
  CHECK_REFUSED(BadCheckpoint, plan_of(bare), disk.path());  // nothing says the dtype
  const Plan with_dtype = plan_of(bare, with([](auto& o) { o.dtype = "bfloat16"; }));
  CHECK(with_dtype.config.text("dtype") == "bfloat16");
  CHECK_REFUSED(BadOption, plan_of(bare, with([](auto& o) { o.dtype = "x"; })), "'x'");
  CHECK_REFUSED(BadOption, plan_of(disk.config, "c", with([](auto& o) { o.attn_implementation = "x"; })), "'x'");
  CHECK_REFUSED(BadConfig, plan_of(json::object(), "dir/config.json"), "dir/config.json", "'model_type'");
  CHECK_REFUSED(BadConfig, plan_of(json::array(), "dir/config.json"), "dir/config.json");
  disk.change({{"dtype", "float16"}});
  const Checkpoint typed = Checkpoint::open(disk.path(), std::nullopt, Checkpoint::Weights::Optional);
  CHECK(plan_of(typed).config.text("dtype") == "float16");
  disk.write();
  CHECK(plan_of(Checkpoint::open(disk.path())).rows.size() == disk.load().plan().rows.size());
}

TEST_CASE("model: greedy generation ends at the checkpoint's tokens, unless others are named") {
  Folder disk;
  CHECK(disk.load().end_tokens() == std::vector<int64_t>{1});  // the reference's default
  CHECK(disk.load().pad_token() == 0);
  const Model model = disk.load();
  GenerateOptions options;
  options.max_new_tokens = 6;
  options.end_tokens = {1099};
  const at::Tensor six = model.generate(some_prompt(), options);
  const int64_t third = six[0][8].item<int64_t>();
  disk.change({{"eos_token_id", {1, third}}, {"pad_token_id", nullptr}});
  CHECK(disk.load().end_tokens() == std::vector<int64_t>{1, third});
  CHECK(disk.load().pad_token() == 0);
  options.end_tokens.reset();
  const at::Tensor ended = disk.load().generate(some_prompt(), options);
  CHECK(ended.size(1) <= 9);
  CHECK(ended[0][ended.size(1) - 1].item<int64_t>() == third);
  disk.folder.add("generation_config.json", "{\"eos_token_id\": 1099}");
  CHECK(disk.load().end_tokens() == std::vector<int64_t>{1099});
  CHECK(same_bits(disk.load().generate(some_prompt(), options), six));
  disk.folder.add("generation_config.json", "{\"eos_token_id\": null}");
  CHECK(disk.load().end_tokens().empty());
  CHECK_REFUSED(BadPrompt, model.generate({at::empty({0}, at::kLong), {}, {}}, options), "empty");
}

TEST_CASE("model: a trace outlives its model") {
  const Folder disk;
  auto trace = [&] { return disk.load().trace(some_prompt()); }();
  CHECK(trace.read("logits").isfinite().all().item<bool>());
}
