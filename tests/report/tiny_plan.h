// A plan of three blocks, the last of another size, one value absent in the first: enough to print.
#pragma once

#include "gemloupe/plan/builder.h"

namespace gemloupe::test {

inline Slot tiny_block(PlanBuilder& b, int index, Slot x) {
  auto scope = b.module(std::to_string(index), "Block", {"mlp"});
  b.value(values::layer_input, {x, {}});
  {
    auto mlp = b.module("mlp", "Mlp");
    mlp.arguments({{"", x}});
    x = b.linear("down_proj", {x, {}}, index == 2 ? 8 : 4, 4, false, "");
    if (index == 0)
      b.absent(values::mlp_neurons, "its <first> block has none");
    else
      b.value(values::mlp_neurons, {x, {}});
    b.value(values::mlp_output, {x, {}}, with_ending(values::mlp_output, ": here"));
    mlp.returns(x);
  }
  b.value(values::layer_output, {x, {}});
  scope.returns(x);
  return x;
}

inline Plan tiny_plan() {
  PlanBuilder b("tiny", "TinyForCausalLM", Config(json{{"rms_norm_eps", 1e-6}, {"tied", true}, {"kinds", {"a", "b"}}}),
                {{"model.", ""}});
  b.plan().sizes = {4, 1, 1, 4, 4, 8, 16};
  b.plan().identity = "x + y == z";
  b.plan().moved = {&values::layer_output};
  b.note("To know", "What a note says.");
  b.value(values::input_ids, {b.input_ids(), {}});
  b.value(values::input_size, {b.input_ids(), {}});
  Slot x;
  {
    auto model = b.module("model", "TinyModel", {"embed_tokens", "layers"});
    x = b.embed("embed_tokens", "Embedding", b.input_ids(), 16, 4, 1.0, std::nullopt, "");
    b.value(values::token_embeddings, {x, {}});
    auto list = b.module("layers", "ModuleList");
    for (int i = 0; i < 3; ++i) {
      Sizes sizes = b.plan().sizes;
      if (i == 2) sizes.intermediate_size = 16;
      b.begin_layer(i, sizes, i == 2 ? "full" : "sliding");
      x = tiny_block(b, i, x);
      b.end_layer();
    }
  }
  b.value(values::final_norm_output, {x, {}});
  Slot logits = b.tied_linear("lm_head", {x, {}}, 4, 16, "model.embed_tokens.weight");
  b.value(values::logits, {logits, {}});
  Slot probabilities = b.step(op::LastProbabilities{}, {{logits, {}}});
  b.value(values::next_token_probs, {probabilities, {}});
  return b.finish();
}

}  // namespace gemloupe::test
