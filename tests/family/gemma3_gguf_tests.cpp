#include <doctest/doctest.h>

#include "family/gemma3.h"
#include "gemloupe/base/errors.h"
#include "plan/invariants.h"
#include "store/gguf_builder.h"

using namespace family_tests;
using namespace store_tests;

namespace {

/// A GGUF's metadata as llama.cpp's converter writes it, with changes.
class Gguf {
 public:
  Gguf() {
    text("general.architecture", "gemma3");
    number("block_count", 7);
    number("context_length", 32768);
    number("embedding_length", 24);
    number("feed_forward_length", 40);
    number("attention.head_count", 4);
    number("attention.head_count_kv", 2);
    number("attention.key_length", 6);
    number("attention.value_length", 6);
    number("attention.sliding_window", 5);
    real("attention.layer_norm_rms_epsilon", 1e-6f);
    real("rope.freq_base", 1e6f);
  }

  void text(const std::string& key, const std::string& value) { pairs_[key] = {kString, GgufBuilder::text(value)}; }
  void number(const std::string& key, uint32_t value) { pairs_["gemma3." + key] = {kU32, bytes_of(value)}; }
  void real(const std::string& key, float value) { pairs_["gemma3." + key] = {kF32, bytes_of(value)}; }
  void remove(const std::string& key) { pairs_.erase("gemma3." + key); }
  bool untied = false;

  Checkpoint open() const {
    GgufBuilder builder;
    for (const auto& [key, value] : pairs_) builder.pair(key, value.first, value.second);
    builder.tensor("token_embd.weight", {24, 50}, 0, 0);
    if (untied) builder.tensor("output.weight", {24, 50}, 0, 4800);
    const TempFolder folder;
    return Checkpoint::open(folder.add("m.gguf", builder.file(untied ? 9600 : 4800)).string());
  }

  json config() const { return gemma3().config_from_gguf(open()); }

 private:
  std::map<std::string, std::pair<uint32_t, std::string>> pairs_;
};

}  // namespace

TEST_CASE("gemma3 gguf: the metadata amounts to a config") {
  const Config c = read(Gguf().config());
  CHECK(c.integer("vocab_size") == 50);
  CHECK(c.integer("hidden_size") == 24);
  CHECK(c.integer("intermediate_size") == 40);
  CHECK(c.integer("num_hidden_layers") == 7);
  CHECK(c.integer("num_attention_heads") == 4);
  CHECK(c.integer("num_key_value_heads") == 2);
  CHECK(c.integer("head_dim") == 6);
  CHECK(c.integer("sliding_window") == 5);
  CHECK(c.integer("max_position_embeddings") == 32768);
  CHECK(c.number("rms_norm_eps") == doctest::Approx(1e-6));
  CHECK(c.number("query_pre_attn_scalar") == 6);
  CHECK(c.flag("tie_word_embeddings"));
  CHECK(c.attributes()["rope_parameters"]["full_attention"] == json{{"rope_type", "default"}, {"rope_theta", 1e6}});
  CHECK(c.attributes()["rope_parameters"]["sliding_attention"]["rope_theta"] == 1e4);
  CHECK(c.texts("layer_types")[5] == "full_attention");
  CHECK(plan_tests::faults_of(plan_of(Gguf().config())) == "");
}

TEST_CASE("gemma3 gguf: every weight has a name there, and norms are stored as 1 + weight") {
  const Plan plan = plan_of(Gguf().config());
  std::map<std::string, std::string> names;
  for (const WeightSlot& weight : plan.weights) {
    if (weight.tied_to) continue;
    CHECK(names.emplace(weight.gguf, weight.name).second);
    CHECK(weight.gguf_adds_one == (weight.name.find("norm") != std::string::npos));
  }
  CHECK(names.size() == 2 + 7 * 13);
  CHECK(names["token_embd.weight"] == "model.embed_tokens.weight");
  CHECK(names["output_norm.weight"] == "model.norm.weight");
  const std::string block = "model.layers.3.";
  CHECK(names["blk.3.attn_norm.weight"] == block + "input_layernorm.weight");
  CHECK(names["blk.3.attn_q.weight"] == block + "self_attn.q_proj.weight");
  CHECK(names["blk.3.attn_k.weight"] == block + "self_attn.k_proj.weight");
  CHECK(names["blk.3.attn_v.weight"] == block + "self_attn.v_proj.weight");
  CHECK(names["blk.3.attn_output.weight"] == block + "self_attn.o_proj.weight");
  CHECK(names["blk.3.attn_q_norm.weight"] == block + "self_attn.q_norm.weight");
  CHECK(names["blk.3.attn_k_norm.weight"] == block + "self_attn.k_norm.weight");
  CHECK(names["blk.3.post_attention_norm.weight"] == block + "post_attention_layernorm.weight");
  CHECK(names["blk.3.ffn_norm.weight"] == block + "pre_feedforward_layernorm.weight");
  CHECK(names["blk.3.ffn_gate.weight"] == block + "mlp.gate_proj.weight");
  CHECK(names["blk.3.ffn_up.weight"] == block + "mlp.up_proj.weight");
  CHECK(names["blk.3.ffn_down.weight"] == block + "mlp.down_proj.weight");
  CHECK(names["blk.3.post_ffw_norm.weight"] == block + "post_feedforward_layernorm.weight");
}

TEST_CASE("gemma3 gguf: what larger models add") {
  Gguf file;
  file.text("gemma3.rope.scaling.type", "linear");
  file.real("rope.scaling.factor", 8);
  file.real("rope.freq_base_swa", 12345);
  file.real("final_logit_softcapping", 30);
  file.untied = true;
  const Config c = read(file.config());
  const json& rope = c.attributes()["rope_parameters"];
  CHECK(rope["full_attention"] == json{{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}});
  CHECK(rope["sliding_attention"]["rope_theta"] == 12345);
  CHECK(c.number("final_logit_softcapping") == 30);
  CHECK(!c.flag("tie_word_embeddings"));
  file.text("gemma3.rope.scaling.type", "none");
  CHECK(read(file.config()).attributes()["rope_parameters"]["full_attention"]["rope_type"] == "default");
}

TEST_CASE("gemma3 gguf: 27B scales its queries by hidden_size / heads") {
  Gguf file;
  file.number("block_count", 62);
  file.number("embedding_length", 5376);
  file.number("attention.head_count", 32);
  file.number("attention.key_length", 128);
  CHECK(read(file.config()).number("query_pre_attn_scalar") == 168);
  file.number("block_count", 48);
  CHECK(read(file.config()).number("query_pre_attn_scalar") == 128);
}

TEST_CASE("gemma3 gguf: values of the wrong kind are refused, never thrown by a parser") {
  for (const char* key :
       {"block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "attention.key_length",
        "attention.sliding_window", "attention.layer_norm_rms_epsilon", "rope.freq_base"}) {
    for (uint32_t blocks : {7u, 62u}) {
      CAPTURE(key);
      Gguf file;
      file.number("block_count", blocks);
      file.remove(key);
      file.text("gemma3." + std::string(key), "many");
      CHECK_THROWS_AS(read(file.config()), BadConfig);
    }
  }
  Gguf scaled;
  scaled.number("rope.scaling.type", 1);
  CHECK_NOTHROW(read(scaled.config()));
  scaled.remove("rope.scaling.type");
  scaled.text("gemma3.rope.scaling.type", "linear");
  scaled.text("gemma3.rope.scaling.factor", "eight");
  CHECK_THROWS_AS(read(scaled.config()), BadConfig);
  Gguf headless;
  headless.number("block_count", 62);
  headless.number("attention.head_count", 0);
  CHECK_THROWS_AS(read(headless.config()), BadConfig);
}
