#include <cmath>
#include <string>

#include "gemloupe/base/errors.h"
#include "gemloupe/family/text.h"

namespace gemloupe {
inline namespace v0 {
namespace {
constexpr int64_t kMostBlocks = 10000;
}

std::vector<ConfigKey> text_keys(int64_t vocab, int64_t hidden, int64_t inner, int64_t layers, int64_t heads,
                                 int64_t kv_heads, int64_t positions) {
  return {{"vocab_size", KeyType::Size, vocab},
          {"hidden_size", KeyType::Size, hidden},
          {"intermediate_size", KeyType::Size, inner},
          {"num_hidden_layers", KeyType::Size, layers},
          {"num_attention_heads", KeyType::Size, heads},
          {"num_key_value_heads", KeyType::Size, kv_heads},
          {"head_dim", KeyType::Size, 256},
          {"max_position_embeddings", KeyType::Size, positions},
          {"initializer_range", KeyType::Number, 0.02},
          {"rms_norm_eps", KeyType::Number, 1e-6},
          {"use_cache", KeyType::Flag, true},
          {"pad_token_id", KeyType::Integer, 0, true},
          {"eos_token_id", KeyType::Any, 1, true},
          {"bos_token_id", KeyType::Integer, 2, true},
          {"tie_word_embeddings", KeyType::Flag, true},
          {"rope_parameters", KeyType::Object, nullptr, true},
          {"attention_bias", KeyType::Flag, false},
          {"attention_dropout", KeyType::Number, 0.0, true}};
}

void check_text_config(const Config& c, const std::string& activation, const std::string& where) {
  if (c.integer("num_hidden_layers") > kMostBlocks)
    throw BadConfig(where + ": num_hidden_layers is " + std::to_string(c.integer("num_hidden_layers")) +
                    ", but no Gemma has more than " + std::to_string(kMostBlocks) + " blocks.");
  const int64_t vocab = c.integer("vocab_size");
  if (auto pad = c.optional_integer("pad_token_id"); pad && (*pad >= vocab || *pad < -vocab))
    throw BadConfig(where + ": pad_token_id " + std::to_string(*pad) + " lies outside the vocabulary of " +
                    std::to_string(vocab) + " tokens, which the reference refuses.");
  auto multiple = [&](const char* key, const char* of, const char* whose) {
    if (c.integer(key) % c.integer(of))
      throw BadConfig(where + ": " + key + " (" + std::to_string(c.integer(key)) + ") is no multiple of " + of + " (" +
                      std::to_string(c.integer(of)) + ")" + whose);
  };
  multiple("num_attention_heads", "num_key_value_heads", ".");
  multiple("hidden_size", "num_attention_heads", ", which the reference refuses.");
  if (!(c.number("rms_norm_eps") >= 0)) throw BadConfig(where + ": rms_norm_eps must be 0 or more.");
  if (c.integer("head_dim") % 2) throw BadConfig(where + ": head_dim must be even, the rotary embedding turns pairs.");
  if (c.text(activation) != "gelu_pytorch_tanh")
    throw BadConfig(where + ": " + activation + " '" + c.text(activation) + "' is not 'gelu_pytorch_tanh', Gemma's.");
}

void check_layer_types(const Config& c, const std::string& where) {
  auto kinds = c.texts("layer_types");
  if (static_cast<int64_t>(kinds.size()) != c.integer("num_hidden_layers"))
    throw BadConfig(where + ": layer_types names " + std::to_string(kinds.size()) + " blocks, num_hidden_layers says " +
                    std::to_string(c.integer("num_hidden_layers")) + ".");
  for (const std::string& kind : kinds)
    if (kind != kSliding && kind != kFull)
      throw BadConfig(where + ": layer_types holds '" + kind + "', which is neither '" + kSliding + "' nor '" + kFull +
                      "'.");
}

void complete_rope_table(json& table, const json& theta, const std::string& name, const std::string& where,
                         bool may_be_proportional) {
  if (!table.is_object()) throw BadConfig(where + ": " + name + " must be an object.");
  if (!table.contains("rope_type")) table["rope_type"] = table.value("type", json("default"));
  if (!table.contains("rope_theta")) table["rope_theta"] = theta;
  if (!table["rope_theta"].is_number() || table["rope_theta"].get<double>() <= 0)
    throw BadConfig(where + ": " + name + ": rope_theta must be a number above 0.");
  const json& type = table["rope_type"];
  if (type != "default" && type != "linear" && !(may_be_proportional && type == "proportional"))
    throw BadConfig(where + ": " + name + ": rope_type " + type.dump() + " is none of 'default' and 'linear'" +
                    (may_be_proportional ? " and 'proportional'" : "") + ", which Gemma uses.");
  auto number_within = [&](const char* key, double least, double most) {
    return table.contains(key) && table[key].is_number() && table[key].get<double>() > least &&
           table[key].get<double>() <= most;
  };
  if (table.contains("partial_rotary_factor") && type == "proportional" &&
      !number_within("partial_rotary_factor", 0, 1))
    throw BadConfig(where + ": " + name + ": partial_rotary_factor must be above 0 and at most 1.");
  if ((type == "linear" || (type == "proportional" && table.contains("factor"))) && !number_within("factor", 0, 1e9))
    throw BadConfig(where + ": " + name + ": rope_type " + type.dump() + " needs a 'factor' above 0.");
}

json single_rope_parameters(const json& raw, double theta, const std::string& where) {
  json rope =
      raw.contains("rope_parameters") && raw["rope_parameters"].is_object() ? raw["rope_parameters"] : json::object();
  if (raw.contains("rope_scaling") && raw["rope_scaling"].is_object()) rope.update(raw["rope_scaling"]);
  complete_rope_table(rope, raw.contains("rope_theta") ? raw["rope_theta"] : json(theta), "rope_parameters", where);
  return rope;
}

RotaryFrequencies frequencies_of(const json& table, int64_t head_dim) {
  RotaryFrequencies f{head_dim, table["rope_theta"].get<double>()};
  if (table["rope_type"] == "linear") f.linear_factor = table["factor"].get<double>();
  if (table["rope_type"] == "proportional") {
    const double share = table.value("partial_rotary_factor", 1.0);
    f.turning = static_cast<int64_t>(std::floor(share * static_cast<double>(head_dim) / 2));
    f.linear_factor = table.value("factor", 1.0);
  }
  return f;
}

}  // namespace v0
}  // namespace gemloupe
