#include "gemloupe/family/text_gguf.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr auto kReal = GgufKey::Kind::Real;

/// Tokens that end a text beside tokenizer.ggml.eos_token_id.
constexpr std::array kMoreEnds{"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};

std::vector<GgufKey> keys_of(const GgufForm& form) {
  std::vector<GgufKey> keys{{"context_length", "max_position_embeddings"},
                            {"embedding_length", "hidden_size"},
                            {"block_count", "num_hidden_layers"},
                            {"feed_forward_length", "intermediate_size"},
                            {"attention.head_count", "num_attention_heads"},
                            {"attention.head_count_kv", "num_key_value_heads"},
                            {"attention.key_length", "head_dim"},
                            {"attention.layer_norm_rms_epsilon", "rms_norm_eps", kReal},
                            {"rope.freq_base", "rope_theta", kReal}};
  keys.insert(keys.end(), form.keys.begin(), form.keys.end());
  return keys;
}

/// Attributes that say nothing of a forward pass: the reference's own bookkeeping, training, generation, and names.
constexpr std::array kWithoutEffect{"transformers_version",
                                    "architectures",
                                    "output_hidden_states",
                                    "return_dict",
                                    "dtype",
                                    "chunk_size_feed_forward",
                                    "is_encoder_decoder",
                                    "id2label",
                                    "label2id",
                                    "problem_type",
                                    "output_attentions",
                                    "model_type",
                                    "initializer_range",
                                    "use_cache",
                                    "attention_dropout",
                                    "pad_token_id",
                                    "eos_token_id",
                                    "bos_token_id"};

/// The ids of the vocabulary, where they are ids of the model. Several tokens may end a text: a turn's end is one, too.
void read_token_ids(const Checkpoint& checkpoint, json& c) {
  const auto& vocabulary = checkpoint.tokenizer_files().gguf;
  if (!vocabulary || !c.contains("vocab_size")) return;
  auto is_id = [&](const json& id) {
    return id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < c["vocab_size"].get<int64_t>();
  };
  if (vocabulary->bos && is_id(*vocabulary->bos)) c["bos_token_id"] = *vocabulary->bos;
  if (vocabulary->padding && is_id(*vocabulary->padding)) c["pad_token_id"] = *vocabulary->padding;
  json ends = json::array();
  auto add_end = [&](const json& id) {
    if (is_id(id) && std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  };
  if (vocabulary->eos) add_end(*vocabulary->eos);
  for (const char* key : kMoreEnds) add_end(checkpoint.gguf_metadata().value(key, json()));
  if (!ends.empty()) c["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
}

/// A float32 is what a GGUF file has of a number.
bool means_the_same(const json& a, const json& b) {
  if (a.is_number() && b.is_number()) return a.get<float>() == b.get<float>();
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.items())
      if (!b.contains(key) || !means_the_same(value, b[key])) return false;
    return a.size() == b.size();
  }
  const bool neither = (a.is_null() || a == false) && (b.is_null() || b == false);
  return neither || a == b;
}

}  // namespace

json said_number(const json& value) {
  if (!value.is_number_float()) return value;
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value.get<float>()).ptr;
  double said = 0;
  std::from_chars(text.data(), end, said);
  return said;
}

json text_config_from_gguf(const Checkpoint& checkpoint, const GgufForm& form) {
  const json& g = checkpoint.gguf_metadata();
  json c = json::object();
  c["model_type"] = form.model_type;
  c["architectures"] = json::array({form.class_name});
  const std::string prefix = form.architecture + ".";
  for (const GgufKey& key : keys_of(form))
    if (auto found = g.find(prefix + key.gguf); found != g.end()) c[key.config] = said_number(*found);
  if (g.value(prefix + "rope.scaling.type", json()) == "linear") {
    c["rope_scaling"] = json::object();
    c["rope_scaling"]["rope_type"] = "linear";
    c["rope_scaling"]["factor"] = said_number(g.value(prefix + "rope.scaling.factor", json(1.0)));
  }
  if (const StoredTensor* embedding = checkpoint.find("token_embd.weight"); embedding && embedding->shape.size() == 2)
    c["vocab_size"] = embedding->shape[0];
  c["tie_word_embeddings"] = checkpoint.find("output.weight") == nullptr;
  read_token_ids(checkpoint, c);
  return c;
}

GgufModel text_config_to_gguf(const Config& config, const GgufForm& form, const json& table, const json& more) {
  GgufModel out;
  out.architecture = form.architecture;
  json said = config.attributes();
  said["rope_theta"] = table["rope_theta"];
  said.update(more);
  const std::string prefix = form.architecture + ".";
  json& g = out.metadata;
  for (const GgufKey& key : keys_of(form)) {
    const json value = said.value(key.config, json());
    if (value.is_number()) g[prefix + key.gguf] = key.kind == kReal ? json(value.get<double>()) : value;
  }
  g[prefix + "attention.value_length"] = g[prefix + "attention.key_length"];  // read by llama.cpp alone
  if (table["rope_type"] == "linear") {
    g[prefix + "rope.scaling.type"] = "linear";
    g[prefix + "rope.scaling.factor"] = table["factor"].get<double>();
  }
  out.meant = config.attributes();
  for (const char* key : kWithoutEffect) out.meant.erase(key);
  return out;
}

void refuse_another_meaning(const GgufModel& model, const GgufFile& file, const std::string& where) {
  const Family& family = find_gguf_family(model.architecture, where);
  const json config = family.config_from_gguf(Checkpoint::of_gguf(file, where));
  const json read = family.read_config(config, where, {}).attributes();
  for (const auto& [key, value] : model.meant.items())
    if (read.contains(key) && !means_the_same(value, read[key]))
      throw BadConfig(where + ": a GGUF file cannot say that " + key + " is " + value.dump().substr(0, 200) +
                      ": its readers take " + read[key].dump().substr(0, 200) + ". Keep this checkpoint as it is.");
}

size_t write_ends(std::vector<int64_t> ends, GgufFile& file) {
  if (!file.vocabulary || ends.empty()) return 0;
  std::optional<int64_t>& eos = file.vocabulary->eos;
  if (!eos) eos = ends[0];
  std::erase(ends, *eos);
  const size_t written = std::min(ends.size(), kMoreEnds.size());
  for (size_t i = 0; i < written; ++i) file.metadata[kMoreEnds[i]] = ends[i];
  return ends.size() - written;
}

void query_scalar_from_gguf(json& c, int64_t blocks_of_27b) {
  auto integer = [&](const char* key) { return c.contains(key) && c[key].is_number_integer(); };
  if (!integer("head_dim")) return;
  c["query_pre_attn_scalar"] = c["head_dim"];
  if (integer("num_hidden_layers") && c["num_hidden_layers"] == blocks_of_27b && integer("hidden_size") &&
      integer("num_attention_heads") && c["num_attention_heads"].get<int64_t>() > 0)
    c["query_pre_attn_scalar"] = c["hidden_size"].get<int64_t>() / c["num_attention_heads"].get<int64_t>();
}

}  // namespace v0
}  // namespace gemloupe
