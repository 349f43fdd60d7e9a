#include <doctest/doctest.h>

#include <set>

#include "family/gemma3.h"
#include "gemloupe/base/errors.h"
#include "gemloupe/family/family.h"
#include "plan/invariants.h"
#include "store/files.h"

using namespace gemloupe;

TEST_CASE("families: each is found by its names") {
  std::set<std::string> names, architectures;
  CHECK(!families().empty());
  for (const Family* family : families()) {
    CAPTURE(family->model_type);
    CHECK(names.insert(family->model_type).second);
    CHECK(&find_family(family->model_type, "config.json") == family);
    CHECK(bool(family->read_config));
    CHECK(bool(family->recipe));
    if (family->gguf_architecture.empty()) continue;
    CHECK(architectures.insert(family->gguf_architecture).second);
    CHECK(&find_gguf_family(family->gguf_architecture, "m.gguf") == family);
    CHECK(bool(family->config_from_gguf));
  }
}

TEST_CASE("families: one that is not there is refused with those that are") {
  CHECK_REFUSED(BadConfig, find_family("llama", "dir/config.json"), "dir/config.json", "'llama'", "'gemma3_text'");
  CHECK_REFUSED(BadConfig, find_family("", "dir/config.json"), "''");
  CHECK_REFUSED(BadConfig, find_gguf_family("llama", "m.gguf"), "m.gguf", "'llama'", "'gemma3'");
  CHECK_REFUSED(BadConfig, find_gguf_family("", "m.gguf"), "''");
}

namespace {

/// A small config of every text family.
std::vector<json> small_text_configs() {
  json gemma2 = family_tests::small_config({{"model_type", "gemma2"}});
  json gemma = family_tests::small_config({{"model_type", "gemma"}});
  for (const char* key : {"sliding_window", "query_pre_attn_scalar"}) gemma.erase(key);
  return {family_tests::small_config(), gemma2, gemma};
}

}  // namespace

TEST_CASE("text families: every plan is sound, whatever the options and the variant") {
  for (const json& config : small_text_configs())
    for (const json& changes : {json::object(), json{{"attention_bias", true}, {"tie_word_embeddings", false}},
                                json{{"num_hidden_layers", 1}, {"num_key_value_heads", 4}, {"pad_token_id", nullptr}}})
      for (const char* cap : {"default", "config", "none", "number"}) {
        json changed = config;
        changed.update(changes);
        CAPTURE(changed.dump());
        const Family& family = find_family(changed["model_type"].get<std::string>(), "config.json");
        const Plan plan = family.recipe(family.read_config(changed, "config.json", {}), {"", cap, 20.0});
        CHECK(plan_tests::faults_of(plan) == "");
        CHECK(plan.family == family.model_type);
      }
}

TEST_CASE("text families: a config beyond reason is refused at once, by the file's name") {
  auto refused = [](json config, const json& changes, std::initializer_list<std::string_view> parts) {
    config.update(changes);
    const Family& family = find_family(config["model_type"].get<std::string>(), "config.json");
    CAPTURE(config.dump());
    const std::string message =
        store_tests::message_of<BadConfig>([&] { family.read_config(config, "dir/config.json", {}); });
    store_tests::check_message(message, {"dir/config.json"});
    store_tests::check_message(message, parts);
  };
  for (const json& config : small_text_configs()) {
    refused(config, {{"num_hidden_layers", 2147483648}}, {"num_hidden_layers", "2147483648"});
    refused(config, {{"pad_token_id", 50}}, {"pad_token_id 50"});
    refused(config, {{"num_key_value_heads", 3}}, {"num_attention_heads (4)", "num_key_value_heads (3)"});
    refused(config, {{"hidden_size", 25}}, {"hidden_size (25)"});
    refused(config, {{"head_dim", 7}}, {"head_dim must be even"});
    refused(config, {{"rope_theta", -1}}, {"rope_theta"});
    refused(config, {{"some_new_mechanism", true}}, {"'some_new_mechanism'", "ignore_config_keys"});
    refused(config, {{"quantization_config", "awq"}}, {"'quantization_config'"});
  }
}
