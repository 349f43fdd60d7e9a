#include <doctest/doctest.h>

#include "family/gemma3.h"
#include "gemloupe/base/errors.h"
#include "store/files.h"

using namespace family_tests;
using store_tests::check_message;
using store_tests::message_of;

namespace {

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";

void refused(const json& changes, std::initializer_list<std::string_view> parts) {
  CAPTURE(changes.dump());
  const std::string message = message_of<BadConfig>([&] { read(small_config(changes)); });
  check_message(message, {"dir/config.json"});
  check_message(message, parts);
}

const json& rope(const Config& config, const char* kind) {
  return config.attributes()["rope_parameters"][kind];
}

}  // namespace

TEST_CASE("gemma3: an empty config is the reference's Gemma3TextConfig()") {
  const Config c = read(json::object());
  CHECK(c.integer("vocab_size") == 262208);
  CHECK(c.integer("hidden_size") == 2304);
  CHECK(c.integer("intermediate_size") == 9216);
  CHECK(c.integer("num_hidden_layers") == 26);
  CHECK(c.integer("num_attention_heads") == 8);
  CHECK(c.integer("num_key_value_heads") == 4);
  CHECK(c.integer("head_dim") == 256);
  CHECK(c.number("rms_norm_eps") == 1e-6);
  CHECK(c.integer("sliding_window") == 4096);
  CHECK(c.flag("tie_word_embeddings"));
  CHECK(c.texts("layer_types").size() == 26);
  CHECK(rope(c, kFull) == json{{"rope_type", "default"}, {"rope_theta", 1e6}});
  CHECK(rope(c, kSliding) == json{{"rope_type", "default"}, {"rope_theta", 1e4}});
}

TEST_CASE("gemma3: released files are normalised") {
  for (const json& raw : {config_270m(), config_1b()}) {
    const Config c = read(raw);
    CHECK(rope(c, kFull)["rope_theta"] == 1e6);
    CHECK(rope(c, kFull)["rope_type"] == "default");
    CHECK(rope(c, kSliding)["rope_theta"] == 1e4);
    CHECK(c.text("dtype") == "bfloat16");
    for (const char* gone : {"rope_theta", "rope_local_base_freq", "rope_scaling", "torch_dtype"})
      CHECK(!c.attributes().contains(gone));
    const auto kinds = c.texts("layer_types");
    CHECK(static_cast<int64_t>(kinds.size()) == c.integer("num_hidden_layers"));
    for (size_t i = 0; i < kinds.size(); ++i) CHECK(kinds[i] == (i % 6 == 5 ? kFull : kSliding));
    CHECK(c.attributes()["_sliding_window_pattern"] == 6);
  }
  CHECK(read(config_1b()).attributes()["cache_implementation"] == "hybrid");
}

TEST_CASE("gemma3: layer_types, else the pattern") {
  CHECK(read(small_config({{"sliding_window_pattern", 2}, {"num_hidden_layers", 4}})).texts("layer_types") ==
        std::vector<std::string>{kSliding, kFull, kSliding, kFull});
  CHECK(read(small_config({{"sliding_window_pattern", 1}, {"num_hidden_layers", 2}})).texts("layer_types") ==
        std::vector<std::string>{kFull, kFull});
  CHECK(
      read(small_config({{"sliding_window_pattern", 2}, {"num_hidden_layers", 2}, {"layer_types", {kFull, kSliding}}}))
          .texts("layer_types") == std::vector<std::string>{kFull, kSliding});
  // A private attribute of the reference, which it does not read back.
  CHECK(read(small_config({{"_sliding_window_pattern", 2}})).texts("layer_types")[1] == kSliding);

  refused({{"sliding_window_pattern", 0}}, {"sliding_window_pattern", "an integer from 1"});
  refused({{"sliding_window_pattern", "six"}}, {"sliding_window_pattern", "an integer from 1"});
  refused({{"layer_types", {kFull}}}, {"layer_types names 1 blocks", "num_hidden_layers says 7"});
  refused({{"num_hidden_layers", 2}, {"layer_types", {kFull, "chunked_attention"}}},
          {"'chunked_attention'", kSliding, kFull});
  refused({{"layer_types", {kFull, 3}}}, {"'layer_types'", "a list of strings"});
}

TEST_CASE("gemma3: rotary tables in every spelling") {
  const Config scaled = read(small_config({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}));
  CHECK(rope(scaled, kFull) == json{{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}});
  CHECK(rope(scaled, kSliding)["rope_type"] == "default");

  const json nested{{kFull, {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 5e5}}}, {kSliding, nullptr}};
  const Config given =
      read(small_config({{"rope_parameters", nested}, {"rope_theta", 1.0}, {"rope_local_base_freq", 77}}));
  CHECK(rope(given, kFull) == nested[kFull]);
  CHECK(rope(given, kSliding) == json{{"rope_type", "default"}, {"rope_theta", 77}});

  const Config older = read(small_config({{"rope_parameters", {{kSliding, {{"type", "linear"}, {"factor", 2}}}}}}));
  CHECK(rope(older, kSliding)["rope_type"] == "linear");

  auto table = [](const json& content) { return json{{"rope_parameters", {{kFull, content}}}}; };
  refused(table({{"rope_type", "yarn"}}), {"rope_parameters['full_attention']", "\"yarn\"", "'linear'"});
  refused(table({{"rope_type", 3}}), {"rope_type 3"});
  refused(table({{"type", 3}}), {"rope_type 3"});
  refused(table({{"rope_theta", 0}}), {"full_attention", "rope_theta", "above 0"});
  refused(table({{"rope_theta", "1e6"}}), {"full_attention", "rope_theta", "above 0"});
  refused(table({{"rope_type", "linear"}}), {"full_attention", "'factor' above 0"});
  refused(table({{"rope_type", "linear"}, {"factor", 0}}), {"'factor' above 0"});
  refused(table({{"rope_type", "linear"}, {"factor", "8"}}), {"'factor' above 0"});
  refused(table(3), {"full_attention", "an object"});
  refused({{"rope_parameters", {{kFull, 3}}}, {"rope_scaling", {{"factor", 8}}}}, {"full_attention", "an object"});
  refused({{"rope_parameters", {{kSliding, "x"}}}}, {"sliding_attention", "an object"});
  refused({{"rope_parameters", 3}}, {"'rope_parameters'", "an object"});
  refused({{"rope_theta", nullptr}}, {"full_attention", "rope_theta"});
  refused({{"rope_local_base_freq", -1}}, {"sliding_attention", "rope_theta"});
}

TEST_CASE("gemma3: bidirectional attention sees half of the window each way") {
  CHECK(
      read(small_config({{"sliding_window", 512}, {"use_bidirectional_attention", true}})).integer("sliding_window") ==
      257);
  CHECK(read(small_config({{"sliding_window", 5}, {"use_bidirectional_attention", true}})).integer("sliding_window") ==
        3);
  CHECK(read(small_config({{"sliding_window", 512}, {"use_bidirectional_attention", nullptr}}))
            .integer("sliding_window") == 512);
  CHECK(!read(small_config({{"sliding_window", nullptr}, {"use_bidirectional_attention", true}}))
             .optional_integer("sliding_window"));
}

TEST_CASE("gemma3: sizes that do not fit together, each with its message") {
  refused({{"num_key_value_heads", 3}}, {"num_attention_heads (4)", "no multiple of num_key_value_heads (3)"});
  refused({{"num_key_value_heads", 8}}, {"num_attention_heads (4)", "(8)"});
  refused({{"hidden_size", 25}}, {"hidden_size (25)", "num_attention_heads (4)", "reference refuses"});
  refused({{"head_dim", 7}}, {"head_dim must be even"});
  refused({{"query_pre_attn_scalar", 0}}, {"query_pre_attn_scalar must be above 0"});
  refused({{"hidden_activation", "silu"}}, {"'silu'", "'gelu_pytorch_tanh'"});
  refused({{"pad_token_id", 50}}, {"pad_token_id 50", "vocabulary of 50"});
  refused({{"pad_token_id", -51}}, {"pad_token_id -51", "vocabulary of 50"});
  refused({{"num_hidden_layers", 2147483648}}, {"num_hidden_layers", "2147483648"});  // at once, not after minutes
  refused({{"num_hidden_layers", 0}}, {"'num_hidden_layers'", "from 1"});
  refused({{"vocab_size", 0}}, {"'vocab_size'", "from 1"});
  refused({{"sliding_window", 0}}, {"'sliding_window'", "from 1"});
  refused({{"num_heads", 4}}, {"'num_heads'", "no meaning", "ignore_config_keys"});
  CHECK_NOTHROW(read(small_config({{"pad_token_id", -1}})));
  CHECK_NOTHROW(read(small_config({{"pad_token_id", nullptr}})));
  CHECK(gemma3().read_config(small_config({{"num_heads", 4}}), "c", {"num_heads"}).attributes()["num_heads"] == 4);
}
