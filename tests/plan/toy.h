// A family for the tests of plans: attention blocks without an MLP, every size another.
#pragma once

#include "gemloupe/plan/builder.h"

namespace plan_tests {

using namespace gemloupe;

constexpr const char* kNoMlp = "the toy has no MLP";

inline Slot toy_attention(PlanBuilder& b, Slot x, Slot mask, Slot cos, Slot sin, int layer) {
  auto scope = b.module("self_attn", "ToyAttention", {"o_proj", "q_proj", "k_proj", "v_proj"});
  scope.arguments({{"hidden_states", x}, {"rotary", PartSpec::tuple({cos, sin})}, {"mask", mask}});
  scope.attribute("layer_idx", layer);
  const View heads{View::Kind::HeadsFirst, 4};
  Slot q = b.linear("q_proj", {x, {}}, 10, 24, true, "blk.q");
  Slot k = b.linear("k_proj", {x, {}}, 10, 12, false, "blk.k");
  Slot v = b.linear("v_proj", {x, {}}, 10, 12, false, "blk.v");
  q = b.step(op::Rotate{}, {{q, heads}, {cos, {}}, {sin, {}}});
  k = b.step(op::Rotate{}, {{k, heads}, {cos, {}}, {sin, {}}});
  auto [keys, values] = b.step2(op::Extend{layer, std::nullopt}, {{k, {}}, {v, heads}});
  Slot mixed = b.attention({q, {}}, keys, values, mask, 0.5, std::nullopt, {});
  Slot pattern = b.plan().steps.back().inputs[0].slot;
  Slot out = b.linear("o_proj", {mixed, {View::Kind::Flat, 4}}, 24, 10, false, "blk.o");
  scope.returns(PartSpec::tuple({out, pattern}));
  return out;
}

inline Slot toy_block(PlanBuilder& b, Slot x, Slot mask, Slot cos, Slot sin, int layer) {
  auto scope = b.module(std::to_string(layer), "ToyBlock");
  scope.arguments({{"", x}, {"mask", mask}});
  b.value(values::layer_input, {x, {}});
  Slot normed = b.norm("input_layernorm", {x, {}}, 10, {"ToyNorm", 1e-6, Gain::OnePlusWeight}, "blk.norm");
  b.value(values::attention_norm_output, {normed, {}});
  Slot attended = toy_attention(b, normed, mask, cos, sin, layer);
  b.value(values::attention_output, {attended, {}}, with_ending(values::attention_output, ": the output projection's"));
  for (const ValueSpec* spec : {&values::mlp_norm_output, &values::mlp_input, &values::mlp_activation,
                                &values::mlp_neurons, &values::mlp_output})
    b.absent(*spec, kNoMlp);
  Slot out = b.step(op::Add{}, {{x, {}}, {attended, {}}});
  b.value(values::layer_mid, {out, {}});
  b.value(values::layer_output, {out, {}});
  scope.returns(out);
  return out;
}

inline Slot toy_model(PlanBuilder& b, int layers) {
  auto scope = b.module("model", "ToyModel", {"norm", "layers", "embed_tokens"});
  scope.arguments({{"input_ids", b.input_ids()}, {"attention_mask", b.attention_mask()}});
  Slot stream = b.embed("embed_tokens", "ToyEmbedding", b.input_ids(), 30, 10, 2.0, 0, "token_embd");
  b.value(values::token_embeddings, {stream, {}});
  auto [cos, sin] = b.step2(op::Rotary{{4, 1e4, 1.0}}, {{b.position_ids(), {}}, {stream, {}}});
  Slot mask = b.step(op::Mask{}, {{b.attention_mask(), {}}, {b.position_ids(), {}}, {stream, {}}});
  {
    auto list = b.module("layers", "ModuleList");
    list.no_ports("a list is not called");
    for (int i = 0; i < layers; ++i) {
      b.begin_layer(i, b.plan().sizes, "full_attention");
      stream = toy_block(b, stream, mask, cos, sin, i);
      b.end_layer();
    }
  }
  stream = b.norm("norm", {stream, {}}, 10, {"ToyNorm", 1e-6, Gain::None}, "output_norm");
  b.value(values::final_norm_output, {stream, {}});
  scope.returns(PartSpec::tuple({stream}, {"last_hidden_state"}));
  return stream;
}

inline Plan toy_plan(int layers = 2) {
  PlanBuilder b("toy", "ToyForCausalLM", Config(json{{"hidden_size", 10}}), {{"model.", ""}});
  b.plan().sizes = {10, 6, 3, 4, 4, 7, 30};
  b.value(values::input_ids, {b.input_ids(), {}});
  b.value(values::attention_mask, {b.attention_mask(), {}});
  b.value(values::input_size, {b.input_ids(), {}});
  Slot stream = toy_model(b, layers);
  b.plan().stream_before_head = stream;
  Slot logits = b.tied_linear("lm_head", {stream, {}}, 10, 30, "model.embed_tokens.weight");
  b.value(values::lm_head_output, {logits, {}});
  logits = b.step(op::Softcap{30}, {{logits, {}}});
  b.value(values::logits, {logits, {}});
  Slot probabilities = b.step(op::LastProbabilities{}, {{logits, {}}});
  b.value(values::next_token_probs, {probabilities, {}});
  return b.finish();
}

}  // namespace plan_tests
