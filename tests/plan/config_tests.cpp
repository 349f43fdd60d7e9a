#include <doctest/doctest.h>

#include "gemloupe/base/errors.h"
#include "gemloupe/plan/config.h"
#include "store/files.h"

using namespace gemloupe;
using store_tests::check_message;
using store_tests::message_of;

namespace {

const ConfigSchema& schema() {
  static const ConfigSchema schema{"toy",
                                   {{"hidden_size", KeyType::Size, 48},
                                    {"offset", KeyType::Integer, 0, true},
                                    {"eps", KeyType::Number, 1e-6},
                                    {"tied", KeyType::Flag, true},
                                    {"loose", KeyType::Flag, nullptr, true},
                                    {"activation", KeyType::Text, "gelu"},
                                    {"kinds", KeyType::Texts, nullptr, true},
                                    {"rope", KeyType::Object, nullptr, true},
                                    {"eos", KeyType::Any, 1}},
                                   {"old_rope"}};
  return schema;
}

Config read(const json& raw, const std::vector<std::string>& ignore = {}) {
  return read_config(schema(), raw, "dir/config.json", ignore);
}

void refused(const json& raw, std::initializer_list<std::string_view> parts) {
  CAPTURE(raw.dump());
  const std::string message = message_of<BadConfig>([&] { read(raw); });
  check_message(message, {"dir/config.json"});
  check_message(message, parts);
}

}  // namespace

TEST_CASE("config: an empty one has the reference's defaults") {
  const Config config = read(json::object());
  CHECK(config.integer("hidden_size") == 48);
  CHECK(config.number("eps") == 1e-6);
  CHECK(config.flag("tied"));
  CHECK(!config.flag("loose"));
  CHECK(config.text("activation") == "gelu");
  CHECK(config.text("model_type") == "toy");
  CHECK(config.optional_integer("offset") == 0);
  CHECK(config.attributes()["output_attentions"] == false);
  CHECK(config.attributes()["id2label"] == json{{"0", "LABEL_0"}, {"1", "LABEL_1"}});
  CHECK(config.attributes()["architectures"].is_null());
}

TEST_CASE("config: what a file says counts") {
  const Config config = read({{"hidden_size", 7},
                              {"offset", nullptr},
                              {"eps", 2},
                              {"tied", false},
                              {"kinds", {"a", "b"}},
                              {"rope", {{"theta", 1}}},
                              {"eos", {1, 106}}});
  CHECK(config.integer("hidden_size") == 7);
  CHECK(config.number("eps") == 2.0);
  CHECK(!config.flag("tied"));
  CHECK(config.texts("kinds") == std::vector<std::string>{"a", "b"});
  CHECK(!config.optional_integer("offset"));
  CHECK(config.attributes()["rope"]["theta"] == 1);
  CHECK(config.attributes()["eos"] == json({1, 106}));
}

TEST_CASE("config: each type refuses the others") {
  refused({{"hidden_size", 0}}, {"'hidden_size'", "an integer from 1", "it is 0"});
  refused({{"hidden_size", -1}}, {"'hidden_size'", "it is -1"});
  refused({{"hidden_size", 48.0}}, {"'hidden_size'", "it is 48.0"});
  refused({{"hidden_size", "48"}}, {"'hidden_size'", "it is \"48\""});
  refused({{"hidden_size", int64_t{1} << 40}}, {"'hidden_size'", "to 2147483648"});
  refused({{"hidden_size", UINT64_MAX}}, {"'hidden_size'", "18446744073709551615"});
  refused({{"hidden_size", true}}, {"'hidden_size'", "it is true"});
  refused({{"hidden_size", nullptr}}, {"'hidden_size'", "null"});
  refused({{"offset", 1.5}}, {"'offset'", "an integer"});
  refused({{"offset", UINT64_MAX}}, {"'offset'", "an integer", "18446744073709551615"});
  refused({{"eps", "1e-6"}}, {"'eps'", "a number"});
  refused({{"eps", true}}, {"'eps'", "a number"});
  refused({{"tied", 1}}, {"'tied'", "true or false"});
  refused({{"activation", 3}}, {"'activation'", "a string"});
  refused({{"kinds", "a"}}, {"'kinds'", "a list of strings"});
  refused({{"kinds", {"a", 3}}}, {"'kinds'", "a list of strings"});
  refused({{"rope", 3}}, {"'rope'", "an object"});
  refused({{"eos", nullptr}}, {"'eos'", "null"});
  refused({{"use_cache", 3}}, {"'use_cache'"});
  refused({{"is_encoder_decoder", "no"}}, {"'is_encoder_decoder'", "true or false"});
  refused({{"hidden_size", std::string(100'000, 'x')}}, {"'hidden_size'"});
  CHECK(message_of<BadConfig>([] { read({{"hidden_size", std::string(100'000, 'x')}}); }).size() < 300);
}

TEST_CASE("config: the whole must be an object") {
  refused(json::array({1}), {"a JSON object", "[1]"});
  refused(nullptr, {"a JSON object", "null"});
  refused("{}", {"a JSON object"});
}

TEST_CASE("config: an unknown key is refused with the nearest and the way round") {
  refused({{"hiden_size", 48}},
          {"'hiden_size'", "'toy'", "did you mean 'hidden_size'?", "ignore_config_keys=[\"hiden_size\"]"});
  refused({{"old_rop", 1}}, {"did you mean 'old_rope'?"});
  refused({{"zzzzzzzzzz", 1}}, {"'zzzzzzzzzz'", "ignore_config_keys"});
  CHECK(message_of<BadConfig>([] { read({{"zzzzzzzzzz", 1}}); }).find("did you mean") == std::string::npos);
  const Config config = read({{"hiden_size", 47}, {"other", {1}}}, {"hiden_size", "other"});
  CHECK(config.integer("hidden_size") == 48);
  CHECK(config.attributes()["hiden_size"] == 47);  // ignored by the forward pass, kept for the reader
  CHECK_THROWS_AS(read({{"hiden_size", 47}, {"other", 1}}, {"hiden_size"}), BadConfig);
}

TEST_CASE("config: ignoring a key that has a meaning changes nothing") {
  CHECK(read({{"hidden_size", 7}}, {"hidden_size"}).integer("hidden_size") == 7);
  CHECK_THROWS_AS(read({{"hidden_size", 0}}, {"hidden_size"}), BadConfig);
}

TEST_CASE("config: quantised weights are not read as if they were not") {
  refused({{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}},
          {"'quantization_config'", "gptq", "GGUF"});
  refused({{"quantization_config", json::object()}}, {"'quantization_config'", "unnamed"});
  refused({{"quantization_config", "gptq"}}, {"'quantization_config'"});
  refused({{"quantization_config", {{"quant_method", 3}}}}, {"'quantization_config'"});
  refused({{"quantization_config", {1}}}, {"'quantization_config'"});
  CHECK_NOTHROW(read({{"quantization_config", nullptr}}));
}

TEST_CASE("config: bookkeeping is kept, generation's parameters are popped") {
  const Config config = read({{"unsloth_fixed", true},
                              {"_name_or_path", "x"},
                              {"trl_version", "1"},
                              {"auto_map", {{"a", "b"}}},
                              {"transformers_version", "4.50"},
                              {"temperature", 0.5},
                              {"max_length", 20},
                              {"old_rope", 3}});
  CHECK(config.attributes()["unsloth_fixed"] == true);
  CHECK(config.attributes()["_name_or_path"] == "x");
  CHECK(config.attributes()["transformers_version"] == "4.50");
  CHECK(config.attributes().contains("auto_map"));
  for (const char* gone : {"temperature", "max_length", "old_rope"}) CHECK(!config.attributes().contains(gone));
}

TEST_CASE("config: older names of attributes") {
  CHECK(read({{"torch_dtype", "bfloat16"}}).text("dtype") == "bfloat16");
  CHECK(read({{"torch_dtype", "bfloat16"}, {"dtype", "float32"}}).text("dtype") == "float32");
  const Config config = read({{"num_labels", 3}});
  CHECK(config.attributes()["id2label"].size() == 3);
  CHECK(config.attributes()["label2id"]["LABEL_2"] == 2);
  CHECK(!config.attributes().contains("num_labels"));
  CHECK(read({{"num_labels", INT64_MAX}}).attributes()["id2label"].size() <= 10000);
  CHECK(read({{"num_labels", -1}}).attributes()["id2label"].empty());
}

TEST_CASE("config: typed access says what is there instead") {
  const Config config(
      json{{"i", 1}, {"n", 1.5}, {"b", true}, {"t", "x"}, {"l", {"a", 1}}, {"null", nullptr}, {"big", UINT64_MAX}});
  CHECK(config.number("i") == 1.0);
  CHECK(!config.flag("null"));
  CHECK(!config.optional_number("null"));
  CHECK(config.optional_number("n") == 1.5);
  CHECK_REFUSED(BadConfig, config.integer("n"), "'n'", "an integer", "1.5");
  CHECK_REFUSED(BadConfig, config.integer("b"), "'b'", "an integer", "true");
  CHECK_REFUSED(BadConfig, config.integer("big"), "'big'", "an integer");
  CHECK_REFUSED(BadConfig, config.integer("null"), "'null'", "null");
  CHECK_REFUSED(BadConfig, config.number("t"), "'t'", "a number");
  CHECK_REFUSED(BadConfig, config.flag("i"), "'i'", "true or false");
  CHECK_REFUSED(BadConfig, config.text("i"), "'i'", "a string");
  CHECK_REFUSED(BadConfig, config.texts("t"), "'t'", "a list of strings");
  CHECK_REFUSED(BadConfig, config.texts("l"), "'l'", "a list of strings");
  CHECK_REFUSED(BadConfig, config.optional_integer("t"), "'t'", "an integer");
  CHECK_REFUSED(BadConfig, config.integer("missing"), "no 'missing'");
}
