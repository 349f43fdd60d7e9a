// Gemma 4's config: sizes that differ by kind of block, borrowed keys and values, experts.
#include <algorithm>
#include <charconv>

#include "gemloupe/base/errors.h"
#include "gemloupe/family/gemma4.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// The attributes that a block may have of its own.
const std::vector<std::string> kPerBlock{"head_dim", "num_key_value_heads"};

/// Every sixth block is full where the file names no kinds; the last one always is.
void complete_layer_types(Config& c, const std::string& where) {
  json& kinds = c.attributes()["layer_types"];
  if (kinds.is_null()) {
    kinds = json::array();
    for (int64_t i = 0; i < c.integer("num_hidden_layers"); ++i) kinds.push_back((i + 1) % 6 ? kSliding : kFull);
  }
  check_layer_types(c, where);
  if (kinds.back() != kFull) {
    c.warnings.push_back(where + ": layer_types ends with '" + kinds.back().get<std::string>() +
                         "'; the last block is run as 'full_attention', as the reference does.");
    kinds.back() = kFull;
  }
}

void complete_rope(Config& c, const std::string& where) {
  json& rope = c.attributes()["rope_parameters"];
  if (rope.is_null()) {
    rope[kSliding] = {{"rope_type", "default"}, {"rope_theta", 1e4}};
    rope[kFull] = {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}};
  }
  for (const std::string& kind : c.texts("layer_types")) {
    const std::string name = "rope_parameters['" + kind + "']";
    if (!rope.contains(kind)) throw BadConfig(where + ": " + name + " is missing, and there are blocks of this kind.");
    complete_rope_table(rope[kind], kind == kFull ? 1e6 : 1e4, name, where, /*may_be_proportional=*/true);
  }
}

/// What the file says of single blocks: `per_layer_config`, or the older keys for every full block.
json overrides_by_block(const json& raw, const Config& c) {
  if (raw.contains("per_layer_config") && !raw["per_layer_config"].is_null()) return raw["per_layer_config"];
  json of_full = {{"head_dim", raw.value("global_head_dim", json(512))}};
  const json kv_heads = raw.value("num_global_key_value_heads", json());
  if (c.flag("attention_k_eq_v") && !kv_heads.is_null()) of_full["num_key_value_heads"] = kv_heads;
  json all = json::object();
  auto kinds = c.texts("layer_types");
  for (size_t i = 0; i < kinds.size(); ++i)
    if (kinds[i] == kFull) all[std::to_string(i)] = of_full;
  return all;
}

size_t block_index(const std::string& key, size_t blocks, const std::string& where) {
  size_t index = 0;
  auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  if (error != std::errc() || end != key.data() + key.size() || index >= blocks)
    throw BadConfig(where + ": per_layer_config names block '" + key + "', but the blocks are 0 to " +
                    std::to_string(blocks - 1) + ".");
  return index;
}

/// Kept as the reference keeps it: only what differs from the root's. One kind's blocks share a rotary table, so sizes.
void complete_per_layer_config(const json& raw, Config& c, const std::string& where) {
  const json given = overrides_by_block(raw, c);
  if (!given.is_object()) throw BadConfig(where + ": per_layer_config must be an object of blocks.");
  auto kinds = c.texts("layer_types");
  std::vector<json> own(kinds.size(), json::object());
  for (const auto& [key, block] : given.items()) {
    const size_t index = block_index(key, kinds.size(), where);
    if (!block.is_object()) throw BadConfig(where + ": per_layer_config['" + key + "'] must be an object.");
    for (const auto& [name, value] : block.items()) {
      if (std::find(kPerBlock.begin(), kPerBlock.end(), name) == kPerBlock.end())
        throw BadConfig(where + ": per_layer_config['" + key + "'] sets '" + name +
                        "'; only head_dim and num_key_value_heads may differ between blocks.");
      if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > 1 << 20)
        throw BadConfig(where + ": per_layer_config['" + key + "'] has the " + name + " " + value.dump() +
                        ", which is no size.");
      if (value != c.attributes()[name]) own[index][name] = value;
    }
  }
  json& kept = c.attributes()["per_layer_config"] = json::object();
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto first = static_cast<size_t>(std::find(kinds.begin(), kinds.end(), kinds[i]) - kinds.begin());
    if (own[i] != own[first])
      throw BadConfig(where + ": blocks " + std::to_string(first) + " and " + std::to_string(i) + " are both '" +
                      kinds[i] + "', but per_layer_config gives them different sizes.");
    if (!own[i].empty()) kept[std::to_string(i)] = own[i];
    const Gemma4Block block = gemma4_block(c, static_cast<int>(i));
    if (block.head_dim % 2) throw BadConfig(where + ": head_dim must be even, the rotary embedding turns pairs.");
    if (c.integer("num_attention_heads") % block.kv_heads)
      throw BadConfig(where + ": num_attention_heads (" + std::to_string(c.integer("num_attention_heads")) +
                      ") is no multiple of block " + std::to_string(i) + "'s num_key_value_heads (" +
                      std::to_string(block.kv_heads) + ").");
  }
}

/// Blocks that borrow have an earlier block of their kind to borrow from.
void check_borrowing(const Config& c, const std::string& where) {
  const int64_t borrowing = c.integer("num_kv_shared_layers"), blocks = c.integer("num_hidden_layers");
  if (borrowing < 0 || borrowing > blocks)
    throw BadConfig(where + ": num_kv_shared_layers is " + std::to_string(borrowing) + ", but there are " +
                    std::to_string(blocks) + " blocks.");
  auto kinds = c.texts("layer_types");
  const auto first = kinds.begin() + (blocks - borrowing);
  for (auto kind = first; kind != kinds.end(); ++kind)
    if (std::find(kinds.begin(), first, *kind) == first)
      throw BadConfig(where + ": block " + std::to_string(kind - kinds.begin()) + " borrows keys and values of '" +
                      *kind + "', but no block before the last " + std::to_string(borrowing) +
                      " (num_kv_shared_layers) is of this kind.");
}

void check_experts(const Config& c, const std::string& where) {
  if (!c.attributes().contains("enable_moe_block") || !c.flag("enable_moe_block")) return;
  for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"})
    if (c.attributes()[key].is_null())
      throw BadConfig(where + ": enable_moe_block needs " + key + ", which is not set.");
  if (c.integer("top_k_experts") > c.integer("num_experts"))
    throw BadConfig(where + ": top_k_experts (" + std::to_string(c.integer("top_k_experts")) +
                    ") is above num_experts (" + std::to_string(c.integer("num_experts")) + ").");
}

}  // namespace

std::vector<ConfigKey> gemma4_keys(int64_t positions, int64_t window) {
  std::vector<ConfigKey> keys = text_keys(262144, 2304, 9216, 30, 8, 4, positions);
  const std::vector<ConfigKey> more{{"hidden_activation", KeyType::Text, "gelu_pytorch_tanh"},
                                    {"sliding_window", KeyType::Size, window},
                                    {"layer_types", KeyType::Texts, nullptr, true},
                                    {"final_logit_softcapping", KeyType::Number, nullptr, true},
                                    {"use_bidirectional_attention", KeyType::Text, nullptr, true},
                                    {"attention_k_eq_v", KeyType::Flag, false},
                                    {"num_kv_shared_layers", KeyType::Integer, 0},
                                    {"use_double_wide_mlp", KeyType::Flag, false}};
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

std::vector<std::string> gemma4_legacy_keys() {
  return {"global_head_dim", "num_global_key_value_heads", "per_layer_config", "is_causal"};
}

void complete_gemma4_config(const json& raw, Config& c, const std::string& where) {
  json& a = c.attributes();
  check_text_config(c, "hidden_activation", where);
  const json& both_ways = a["use_bidirectional_attention"];
  if (!both_ways.is_null() && both_ways != "all" && both_ways != "vision")
    throw BadConfig(where + ": use_bidirectional_attention is " + both_ways.dump() + ", not 'all', 'vision' or null.");
  // The reference's flash attention takes exclusive bounds.
  if (both_ways == "all") a["sliding_window"] = c.integer("sliding_window") / 2 + 1;
  if (const json causal = raw.value("is_causal", json()); causal.is_boolean() && causal == (both_ways == "all"))
    throw BadConfig(where + ": is_causal is " + causal.dump() + ", which contradicts use_bidirectional_attention.");
  if (both_ways == "all") a["is_causal"] = false;
  complete_layer_types(c, where);
  complete_rope(c, where);
  complete_per_layer_config(raw, c, where);
  check_borrowing(c, where);
  check_experts(c, where);
}

Gemma4Block gemma4_block(const Config& c, int layer) {
  const std::string key = std::to_string(layer);
  const json& all = c.attributes()["per_layer_config"];
  const json own = all.contains(key) ? all[key] : json::object();
  const int64_t blocks = c.integer("num_hidden_layers");
  Gemma4Block block;
  block.kind = c.texts("layer_types")[static_cast<size_t>(layer)];
  block.head_dim = own.value("head_dim", c.integer("head_dim"));
  block.kv_heads = own.value("num_key_value_heads", c.integer("num_key_value_heads"));
  block.borrows = layer >= blocks - c.integer("num_kv_shared_layers");
  block.keys_are_values = c.flag("attention_k_eq_v") && block.kind == kFull;
  block.inner = c.integer("intermediate_size") * (c.flag("use_double_wide_mlp") && block.borrows ? 2 : 1);
  return block;
}

}  // namespace v0
}  // namespace gemloupe
