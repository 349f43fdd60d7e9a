#include <doctest/doctest.h>

#include "family/gemma3.h"
#include "gemloupe/base/errors.h"
#include "gemloupe/family/released.h"
#include "gemloupe/family/text_gguf.h"
#include "store/files.h"

using namespace family_tests;

namespace {

/// A file of this config, as gemloupe::quantize would describe it, without a vocabulary and with no data.
struct File {
  GgufModel model;
  GgufFile contents;
};

File file_of(const json& raw, const std::string& where) {
  const Family& family = find_family(raw["model_type"], where);
  const Plan plan = family.recipe(family.read_config(raw, where, {}), {});
  Config text = plan.text_config;
  text.attributes()["tie_word_embeddings"] = plan.config.flag("tie_word_embeddings");
  File out{find_family(plan.family, where).gguf_of_config(text), {}};
  out.contents.metadata = out.model.metadata;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) -> StoredTensor& {
    StoredTensor& tensor = out.contents.tensors.emplace_back();
    tensor.name = name, tensor.dtype = DType::F32, tensor.shape = std::move(shape);
    return tensor;
  };
  for (const WeightSlot& slot : plan.weights)
    if (!slot.tied_to && !slot.gguf.empty()) add(slot.gguf, slot.shape);
  if (!out.model.rope_freqs.empty())
    add("rope_freqs.weight", {static_cast<int64_t>(out.model.rope_freqs.size())}).data =
        reinterpret_cast<std::byte*>(out.model.rope_freqs.data());
  return out;
}

void check_refused(const char* key, const json& value, std::initializer_list<std::string_view> words) {
  json raw = config_1b();
  raw[key] = value;
  CAPTURE(key);
  const File file = file_of(raw, "config.json");
  store_tests::check_message(
      store_tests::message_of<BadConfig>([&] { refuse_another_meaning(file.model, file.contents, "config.json"); }),
      words);
}

}  // namespace

TEST_CASE("the config of every released checkpoint is what the GGUF file of it says") {
  for (const Released& one : released()) {
    CAPTURE(one.name);
    const File file = file_of(one.config, one.name);
    CHECK_NOTHROW(refuse_another_meaning(file.model, file.contents, one.name));
    CHECK(file.model.metadata[file.model.architecture + ".block_count"].is_number_integer());
    CHECK(file.model.metadata[file.model.architecture + ".attention.layer_norm_rms_epsilon"].is_number_float());
  }
}

TEST_CASE("gguf of a config: llama.cpp's keys, counts as integers and the rest as reals") {
  json raw = config_270m();
  raw["rope_theta"] = 1000000;  // an integer in some files
  raw["final_logit_softcapping"] = 30;
  const GgufModel model = file_of(raw, "config.json").model;
  CHECK(model.architecture == "gemma3");
  CHECK(model.tokenizer == "llama");
  CHECK(model.rope_freqs.empty());
  const json expected{{"gemma3.context_length", 32768},
                      {"gemma3.embedding_length", 640},
                      {"gemma3.block_count", 18},
                      {"gemma3.feed_forward_length", 2048},
                      {"gemma3.attention.head_count", 4},
                      {"gemma3.attention.head_count_kv", 1},
                      {"gemma3.attention.key_length", 256},
                      {"gemma3.attention.layer_norm_rms_epsilon", 1e-6},
                      {"gemma3.rope.freq_base", 1e6},
                      {"gemma3.attention.sliding_window", 512},
                      {"gemma3.rope.freq_base_swa", 1e4},
                      {"gemma3.final_logit_softcapping", 30.0},
                      {"gemma3.attention.value_length", 256}};
  CHECK(model.metadata.dump() == expected.dump());
}

TEST_CASE("gguf of a config: what a file cannot say is refused by its key") {
  check_refused("query_pre_attn_scalar", 100, {"config.json", "query_pre_attn_scalar is 100", "readers take 256"});
  check_refused("attention_bias", true, {"attention_bias is true", "readers take false"});
  check_refused("use_bidirectional_attention", true, {"cannot say that"});
  json kinds = json::array();
  for (int i = 0; i < 26; ++i) kinds.push_back("full_attention");
  check_refused("layer_types", kinds, {"layer_types is [\"full_attention\""});
  json without_effect = config_1b();
  without_effect["attn_logit_softcapping"] = 50.0;
  without_effect["initializer_range"] = 0.5;
  without_effect["pad_token_id"] = 3;
  const File file = file_of(without_effect, "config.json");
  CHECK_NOTHROW(refuse_another_meaning(file.model, file.contents, "config.json"));
}

TEST_CASE("numbers of a GGUF are read as what was said") {
  CHECK(said_number(double{1e-6f}) == 1e-6);
  CHECK(said_number(double{0.1f}) == 0.1);
  CHECK(said_number(1e6) == 1e6);
  CHECK(said_number(7) == 7);
  CHECK(said_number("text") == "text");
}

TEST_CASE("tokens that end a text: the vocabulary's own, and two more") {
  const auto read = [](std::optional<int64_t> eos, const std::vector<int64_t>& ends, size_t left) {
    File file = file_of(config_1b(), "config.json");
    file.contents.vocabulary.emplace().eos = eos;
    CHECK(write_ends(ends, file.contents) == left);
    return find_gguf_family("gemma3", "")
        .config_from_gguf(Checkpoint::of_gguf(file.contents, "m.gguf"))["eos_token_id"];
  };
  CHECK(read(1, {1, 106}, 0) == json{1, 106});
  CHECK(read(1, {106}, 0) == json{1, 106});
  CHECK(read(1, {1}, 0) == 1);
  CHECK(read(std::nullopt, {106, 1}, 0) == json{106, 1});
  CHECK(read(1, {1, 106, 50, 7, 8}, 2) == json{1, 106, 50});
}
