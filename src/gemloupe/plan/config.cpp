#include "gemloupe/plan/config.h"

#include <algorithm>
#include <array>
#include <limits>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {

const json& Config::at(const std::string& key) const {
  auto found = attributes_.find(key);
  if (found == attributes_.end()) throw BadConfig("the config has no '" + key + "'.");
  return *found;
}

namespace {
[[noreturn]] void refuse_type(const std::string& key, const json& found, const std::string& expected) {
  throw BadConfig("config key '" + key + "' must be " + expected + ", but it is " + found.dump().substr(0, 80) + ".");
}

bool is_integer(const json& value) {
  return value.is_number_unsigned() ? value.get<uint64_t>() <= INT64_MAX : value.is_number_integer();
}
}  // namespace

int64_t Config::integer(const std::string& key) const {
  const json& value = at(key);
  if (!is_integer(value)) refuse_type(key, value, "an integer");
  return value.get<int64_t>();
}

double Config::number(const std::string& key) const {
  const json& value = at(key);
  if (!value.is_number()) refuse_type(key, value, "a number");
  return value.get<double>();
}

bool Config::flag(const std::string& key) const {
  const json& value = at(key);
  if (value.is_null()) return false;
  if (!value.is_boolean()) refuse_type(key, value, "true or false");
  return value.get<bool>();
}

std::string Config::text(const std::string& key) const {
  const json& value = at(key);
  if (!value.is_string()) refuse_type(key, value, "a string");
  return value.get<std::string>();
}

std::optional<int64_t> Config::optional_integer(const std::string& key) const {
  return at(key).is_null() ? std::nullopt : std::optional(integer(key));
}

std::optional<double> Config::optional_number(const std::string& key) const {
  return at(key).is_null() ? std::nullopt : std::optional(number(key));
}

std::vector<std::string> Config::texts(const std::string& key) const {
  const json& value = at(key);
  if (!value.is_array()) refuse_type(key, value, "a list of strings");
  std::vector<std::string> out;
  for (const json& item : value) {
    if (!item.is_string()) refuse_type(key, value, "a list of strings");
    out.push_back(item.get<std::string>());
  }
  return out;
}

namespace {

/// Attributes of the reference's PreTrainedConfig, with its defaults.
const std::vector<ConfigKey>& base_keys() {
  static const std::vector<ConfigKey> keys{{"transformers_version", KeyType::Any, nullptr, true},
                                           {"architectures", KeyType::Any, nullptr, true},
                                           {"output_hidden_states", KeyType::Flag, false, true},
                                           {"return_dict", KeyType::Flag, true, true},
                                           {"dtype", KeyType::Any, nullptr, true},
                                           {"chunk_size_feed_forward", KeyType::Integer, 0, true},
                                           {"is_encoder_decoder", KeyType::Flag, false},
                                           {"id2label", KeyType::Any, json{{"0", "LABEL_0"}, {"1", "LABEL_1"}}, true},
                                           {"label2id", KeyType::Any, json{{"LABEL_0", 0}, {"LABEL_1", 1}}, true},
                                           {"problem_type", KeyType::Any, nullptr, true},
                                           {"output_attentions", KeyType::Flag, false, true}};
  return keys;
}

/// Parameters of generation, which the reference pops from a model's config: generation_config.json is where they
/// count.
constexpr std::array kGenerationKeys{"max_length",
                                     "min_length",
                                     "do_sample",
                                     "early_stopping",
                                     "num_beams",
                                     "temperature",
                                     "top_k",
                                     "top_p",
                                     "typical_p",
                                     "repetition_penalty",
                                     "length_penalty",
                                     "no_repeat_ngram_size",
                                     "encoder_no_repeat_ngram_size",
                                     "bad_words_ids",
                                     "num_return_sequences",
                                     "output_scores",
                                     "return_dict_in_generate",
                                     "forced_bos_token_id",
                                     "forced_eos_token_id",
                                     "remove_invalid_values",
                                     "exponential_decay_length_penalty",
                                     "suppress_tokens",
                                     "begin_suppress_tokens",
                                     "epsilon_cutoff",
                                     "eta_cutoff",
                                     "encoder_repetition_penalty",
                                     "num_assistant_tokens",
                                     "num_assistant_tokens_schedule",
                                     "assistant_confidence_threshold",
                                     "assistant_lookbehind",
                                     "target_lookbehind",
                                     "num_beam_groups",
                                     "diversity_penalty"};

/// Kept as attributes, without a meaning in a forward pass.
constexpr std::array kBookkeepingKeys{"auto_map",
                                      "cache_implementation",
                                      "name_or_path",
                                      "attn_implementation",
                                      "experts_implementation",
                                      "pruned_heads",
                                      "tokenizer_class",
                                      "prefix",
                                      "task_specific_params",
                                      "finetuning_task",
                                      "sep_token_id",
                                      "decoder_start_token_id",
                                      "tie_encoder_decoder",
                                      "torchscript",
                                      "use_bfloat16",
                                      "tf_legacy_loss",
                                      "cross_attention_hidden_size",
                                      "add_cross_attention",
                                      "is_decoder",
                                      "use_return_dict",
                                      "transformers.js_config"};

/// Keys that fine-tuning tools leave behind, and private ones.
const std::vector<std::string> kBookkeepingPrefixes{"unsloth_", "_", "trl_", "peft_", "axolotl_", "mlx_"};

template <class Words>
bool contains(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

constexpr int64_t kLargestSize = int64_t{1} << 31;

/// "config.json: key 'hidden_size'"; of a part, whose name stands behind the file's, "…: key
/// 'text_config.hidden_size'".
std::string key_at(const std::string& where, const std::string& key) {
  const size_t colon = where.rfind(": ");
  if (colon == std::string::npos || !where.ends_with("_config")) return where + ": key '" + key + "'";
  return where.substr(0, colon) + ": key '" + where.substr(colon + 2) + "." + key + "'";
}

void check_type(const ConfigKey& key, const json& value, const std::string& where) {
  auto refuse = [&](const std::string& expected) {
    throw BadConfig(key_at(where, key.name) + " must be " + expected + ", but it is " + value.dump().substr(0, 80) +
                    ".");
  };
  if (value.is_null()) {
    if (!key.nullable) refuse("set (it is null)");
    return;
  }
  switch (key.type) {
    case KeyType::Size:
      if (!is_integer(value) || value.get<int64_t>() < 1 || value.get<int64_t>() > kLargestSize)
        refuse("an integer from 1 to 2147483648");
      break;
    case KeyType::Integer:
      if (!is_integer(value)) refuse("an integer");
      break;
    case KeyType::Number:
      if (!value.is_number()) refuse("a number");
      break;
    case KeyType::Flag:
      if (!value.is_boolean()) refuse("true or false");
      break;
    case KeyType::Text:
      if (!value.is_string()) refuse("a string");
      break;
    case KeyType::Texts:
      if (!value.is_array() || !std::all_of(value.begin(), value.end(), [](const json& v) { return v.is_string(); }))
        refuse("a list of strings");
      break;
    case KeyType::Object:
      if (!value.is_object()) refuse("an object");
      break;
    case KeyType::Any:
      break;
  }
}

[[noreturn]] void refuse_unknown(const std::string& key, const ConfigSchema& schema, const std::string& where) {
  std::vector<std::string> known = schema.legacy;
  for (const ConfigKey& k : schema.keys) known.push_back(k.name);
  for (const ConfigKey& k : base_keys()) known.push_back(k.name);
  std::vector<std::string> near = nearest(key, known);
  throw BadConfig(key_at(where, key) + " has no meaning that gemloupe knows for model_type '" + schema.model_type +
                  "'" + (near.empty() ? std::string() : " (did you mean " + quoted_list(near) + "?)") +
                  ". If it does not change the forward pass, load with ignore_config_keys=[\"" + key + "\"].");
}

}  // namespace

Config read_config(const ConfigSchema& schema, const json& raw, const std::string& where,
                   const std::vector<std::string>& ignore) {
  if (!raw.is_object())
    throw BadConfig(where + ": a config is a JSON object, but it is " + raw.dump().substr(0, 40) + ".");
  if (raw.contains("quantization_config") && !raw["quantization_config"].is_null()) {
    const json& quantised = raw["quantization_config"];
    const bool named =
        quantised.is_object() && quantised.contains("quant_method") && quantised["quant_method"].is_string();
    throw BadConfig(where + ": key 'quantization_config' says that the weights are quantised by " +
                    (named ? quantised["quant_method"].get<std::string>() : "an unnamed method") +
                    ", which gemloupe does not read. Load the unquantised checkpoint or a GGUF file.");
  }
  json out = json::object();
  auto fill = [&](const std::vector<ConfigKey>& keys) {
    for (const ConfigKey& key : keys) {
      auto found = raw.find(key.name);
      if (found != raw.end()) check_type(key, *found, where);
      out[key.name] = found != raw.end() ? *found : key.standard;
    }
  };
  fill(base_keys());
  fill(schema.keys);
  out["model_type"] = schema.model_type;
  if (raw.contains("num_labels") && raw["num_labels"].is_number_integer() && !raw.contains("id2label")) {
    out["id2label"] = out["label2id"] = json::object();
    for (int64_t i = 0; i < std::min<int64_t>(raw["num_labels"].get<int64_t>(), 10000); ++i) {
      out["id2label"][std::to_string(i)] = "LABEL_" + std::to_string(i);
      out["label2id"]["LABEL_" + std::to_string(i)] = i;
    }
  }
  if (out["dtype"].is_null() && raw.contains("torch_dtype")) out["dtype"] = raw["torch_dtype"];
  for (const auto& [key, value] : raw.items()) {
    if (out.contains(key) || key == "torch_dtype" || key == "num_labels" || contains(kGenerationKeys, key)) continue;
    if (contains(schema.legacy, key)) continue;
    bool known = contains(kBookkeepingKeys, key) || starts_with_any(key, kBookkeepingPrefixes) ||
                 contains(schema.unread, key) || contains(ignore, key) || key == "quantization_config";
    if (!known) refuse_unknown(key, schema, where);
    out[key] = value;
  }
  return Config(std::move(out));
}

}  // namespace v0
}  // namespace gemloupe
