#include <doctest/doctest.h>

#include <cmath>

#include "family/gemma3.h"
#include "gemloupe/base/errors.h"
#include "plan/invariants.h"
#include "store/files.h"

using namespace family_tests;
using plan_tests::faults_of;

namespace {

int64_t elements(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

/// The reference's parameters: what a released file holds.
std::map<std::string, std::vector<int64_t>> parameters(int64_t layers, int64_t hidden, int64_t q, int64_t kv,
                                                       int64_t head_dim, int64_t inner, int64_t vocab) {
  std::map<std::string, std::vector<int64_t>> all{{"model.embed_tokens.weight", {vocab, hidden}},
                                                  {"model.norm.weight", {hidden}}};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string block = "model.layers." + std::to_string(i) + ".";
    all[block + "self_attn.q_proj.weight"] = {q, hidden};
    all[block + "self_attn.k_proj.weight"] = {kv, hidden};
    all[block + "self_attn.v_proj.weight"] = {kv, hidden};
    all[block + "self_attn.o_proj.weight"] = {hidden, q};
    all[block + "self_attn.q_norm.weight"] = {head_dim};
    all[block + "self_attn.k_norm.weight"] = {head_dim};
    all[block + "mlp.gate_proj.weight"] = {inner, hidden};
    all[block + "mlp.up_proj.weight"] = {inner, hidden};
    all[block + "mlp.down_proj.weight"] = {hidden, inner};
    for (const char* norm :
         {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"})
      all[block + norm + ".weight"] = {hidden};
  }
  return all;
}

void check_parameters(const Plan& plan, const std::map<std::string, std::vector<int64_t>>& expected, int64_t total) {
  std::map<std::string, std::vector<int64_t>> found;
  int64_t count = 0;
  for (const WeightSlot& weight : plan.weights) {
    if (weight.tied_to) continue;
    found[weight.name] = weight.shape;
    count += elements(weight.shape);
  }
  CHECK(found == expected);
  CHECK(count == total);
}

/// The steps of a block that are of one kind.
template <class O>
std::vector<O> ops_in(const Plan& plan, const std::string& module) {
  const Module& m = plan.module(plan.find_module(module));
  std::vector<O> out;
  for (Position at = m.first; at < m.end; ++at)
    if (const O* op = std::get_if<O>(&plan.steps[static_cast<size_t>(at)].op)) out.push_back(*op);
  return out;
}

std::vector<json> variants() {
  return {small_config(),
          small_config({{"num_hidden_layers", 1}}),
          small_config({{"attention_bias", true}}),
          small_config({{"tie_word_embeddings", false}}),
          small_config({{"final_logit_softcapping", 30.0}, {"attn_logit_softcapping", 50.0}}),
          small_config({{"use_bidirectional_attention", true}}),
          small_config({{"sliding_window", nullptr}}),
          small_config({{"sliding_window_pattern", 1}}),
          small_config({{"num_key_value_heads", 4}, {"pad_token_id", nullptr}}),
          small_config({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}),
          config_270m(),
          config_1b()};
}

}  // namespace

TEST_CASE("gemma3: every plan is sound") {
  for (const json& config : variants())
    for (const char* attention : {"", "eager", "sdpa"})
      for (const char* cap : {"default", "config", "none", "number"}) {
        CAPTURE(config.dump());
        CHECK(faults_of(plan_of(config, {attention, cap, 20.0})) == "");
      }
}

TEST_CASE("gemma3: 270M's parameters") {
  const Plan plan = plan_of(config_270m());
  check_parameters(plan, parameters(18, 640, 1024, 256, 256, 2048, 262144), 268098176);
  CHECK(plan.num_layers() == 18);
  CHECK(plan.layer_kinds[4] == "sliding_attention");
  CHECK(plan.layer_kinds[5] == "full_attention");
}

TEST_CASE("gemma3: 1B's parameters") {
  check_parameters(plan_of(config_1b()), parameters(26, 1152, 1024, 256, 256, 6912, 262144), 999885952);
}

TEST_CASE("gemma3: a tied head shares, an untied one has its own weight, biases where they are asked for") {
  const Plan tied = plan_of(small_config());
  CHECK(tied.weights.back().name == "lm_head.weight");
  CHECK(tied.weights[static_cast<size_t>(*tied.weights.back().tied_to)].name == "model.embed_tokens.weight");
  const Plan untied = plan_of(small_config({{"tie_word_embeddings", false}}));
  CHECK(untied.weights.back().name == "lm_head.weight");
  CHECK(!untied.weights.back().tied_to);
  CHECK(untied.weights.back().gguf == "output.weight");
  auto biases = [](const Plan& plan) {
    return std::count_if(plan.weights.begin(), plan.weights.end(),
                         [](const WeightSlot& weight) { return weight.name.ends_with(".bias"); });
  };
  CHECK(biases(tied) == 0);
  CHECK(biases(plan_of(small_config({{"attention_bias", true}}))) == 7 * 4);
}

TEST_CASE("gemma3: each kind of block has its own mask, window and rotary table") {
  const Plan plan = plan_of(small_config({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}));
  const auto tables = ops_in<op::Rotary>(plan, "model.rotary_emb");
  const auto masks = ops_in<op::Mask>(plan, "model.rotary_emb");
  REQUIRE(tables.size() == 2);
  CHECK(tables[0].frequencies.theta == 1e4);
  CHECK(tables[0].frequencies.linear_factor == 1.0);
  CHECK(tables[0].frequencies.head_dim == 6);
  CHECK(tables[1].frequencies.theta == 1e6);
  CHECK(tables[1].frequencies.linear_factor == 8.0);
  REQUIRE(masks.size() == 2);
  CHECK(masks[0].rule.window == 5);
  CHECK(!masks[1].rule.window);
  for (int i = 0; i < 7; ++i) {
    const std::string path = "layers." + std::to_string(i) + ".self_attn";
    const bool full = i == 5;
    CAPTURE(i);
    CHECK(ops_in<op::Extend>(plan, path).at(0).window == (full ? std::nullopt : std::optional<int64_t>(5)));
    CHECK(ops_in<op::Extend>(plan, path).at(0).cache == i);
    CHECK(ops_in<op::Scores>(plan, path).at(0).rule.window == ops_in<op::Extend>(plan, path).at(0).window);
    CHECK(ops_in<op::Scores>(plan, path).at(0).scale == std::pow(6.0, -0.5));
    const json& attributes = plan.module(plan.find_module(path)).attributes;
    CHECK(attributes["is_sliding"] == !full);
    CHECK(attributes["layer_type"] == (full ? "full_attention" : "sliding_attention"));
    CHECK(attributes["num_key_value_groups"] == 2);
  }
  // Blocks of one kind read the same table, those of the other do not.
  auto table_of = [&](int layer) {
    const std::string block = "layers." + std::to_string(layer);
    return plan.row(plan.find_row(block + ".inputs.position_embeddings.0")).value.slot;
  };
  CHECK(table_of(0) == table_of(6));
  CHECK(table_of(0) != table_of(5));
}

TEST_CASE("gemma3: caps") {
  auto caps = [](const json& config, const RecipeOptions& options = {}) {
    const Plan plan = plan_of(config, options);
    std::vector<double> out;
    for (const Step& step : plan.steps)
      if (const auto* cap = std::get_if<op::Softcap>(&step.op)) out.push_back(cap->cap);
    return out;
  };
  const json capped = small_config({{"final_logit_softcapping", 30.0}});
  CHECK(caps(small_config()).empty());
  CHECK(caps(capped) == std::vector<double>{30});
  CHECK(caps(capped, {"", "config", 0}) == std::vector<double>{30});
  CHECK(caps(capped, {"", "none", 0}).empty());
  CHECK(caps(small_config(), {"", "number", 12.5}) == std::vector<double>{12.5});
  const Plan plan = plan_of(capped);
  CHECK(plan.row(plan.find_row("logits")).value.slot != plan.row(plan.find_row("lm_head_output")).value.slot);
  const Plan bare = plan_of(small_config());
  CHECK(bare.row(bare.find_row("logits")).value.slot == bare.row(bare.find_row("lm_head_output")).value.slot);
}

TEST_CASE("gemma3: the stream is one value between blocks, and the identity's values lie where it says") {
  const Plan plan = plan_of(small_config());
  for (int i = 1; i < 7; ++i) {
    const Row& before = plan.row(plan.find_row("layers." + std::to_string(i - 1) + ".layer_output"));
    const Row& after = plan.row(plan.find_row("layers." + std::to_string(i) + ".layer_input"));
    CHECK(before.value.slot == after.value.slot);
    CHECK(before.position == after.position);
  }
  CHECK(plan.row(plan.find_row("layers.0.layer_input")).value.slot ==
        plan.row(plan.find_row("token_embeddings")).value.slot);
  auto slot = [&](const char* name) { return plan.row(plan.find_row(name)).value.slot; };
  CHECK(slot("layers.2.self_attn.attention_output") == slot("layers.2.post_attention_layernorm.output"));
  CHECK(slot("layers.2.mlp.mlp_output") == slot("layers.2.post_feedforward_layernorm.output"));
  CHECK(slot("layers.2.layer_mid") == slot("layers.2.pre_feedforward_layernorm.input"));
  CHECK(slot("layers.2.mlp.output") == slot("layers.2.post_feedforward_layernorm.input"));
  CHECK(slot("layers.2.self_attn.attention_premix") == slot("layers.2.self_attn.o_proj.input"));
  CHECK(plan.identity.find("layer_output") != std::string::npos);
  CHECK(!plan.notes.empty());
}

TEST_CASE("gemma3: the root's modules, as the reference declares them") {
  const Plan plan = plan_of(small_config({{"num_hidden_layers", 1}}));
  auto children = [&](const char* path) {
    std::vector<std::string> out;
    for (ModuleId child : plan.module(plan.find_module(path)).children) out.push_back(plan.module(child).name);
    return out;
  };
  CHECK(children("") == std::vector<std::string>{"model", "lm_head"});
  CHECK(children("model") == std::vector<std::string>{"embed_tokens", "layers", "norm", "rotary_emb"});
  CHECK(children("model.layers.0") == std::vector<std::string>{"self_attn", "mlp", "input_layernorm",
                                                               "post_attention_layernorm", "pre_feedforward_layernorm",
                                                               "post_feedforward_layernorm"});
  CHECK(children("model.layers.0.self_attn") ==
        std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"});
  CHECK(children("model.layers.0.mlp") == std::vector<std::string>{"gate_proj", "up_proj", "down_proj", "act_fn"});
  CHECK(plan.module(plan.find_module("model.layers.0.mlp.gate_proj")).summary ==
        "in_features=24, out_features=40, bias=False");
  CHECK(plan.module(plan.find_module("model.norm")).summary == "(24,), eps=1e-06");
}

TEST_CASE("gemma3: names that are near, in the names' own spelling") {
  const Plan plan = plan_of(small_config());
  CHECK_REFUSED(UnknownName, plan.find_row("layers.2.mlp_output"), "'layers.2.mlp_output'", "layers.2.mlp");
  CHECK_REFUSED(UnknownName, plan.find_row("layers.7.layer_output"), "7 blocks, 0 to 6");
  CHECK_REFUSED(UnknownName, plan.find_module("layers.0.self_attn.qproj"), "'layers.0.self_attn.q_proj'");
  CHECK_REFUSED(UnknownName, plan.find_row("model.rotary_emb.output"), "model.rotary_emb.output");
}
