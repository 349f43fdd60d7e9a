#include <doctest/doctest.h>

#include "gemloupe/report/printout.h"
#include "tiny_plan.h"

namespace gemloupe {

TEST_CASE("alike blocks are one entry, moved values come first, absent ones are shown") {
  CHECK(printout(test::tiny_plan()) ==
        R"(TinyForCausalLM(
  (lm_head): Linear(in_features=4, out_features=16, bias=False)
  (generator): Generator(
    (streamer): Streamer()
  )
  (embed_tokens): Embedding(16, 4)
  (layers): ModuleList(
    (0-1): 2 x Block(
      (mlp): Mlp(
        (down_proj): Linear(in_features=4, out_features=4, bias=False)
        (mlp_neurons) -> Neurons [batch seq intermediate_size]: What the down projection receives: act(gate)·up on a gated MLP, the activation itself otherwise
        (mlp_output) -> Residual [batch seq hidden_size]: What the MLP adds to the residual stream: here
      )
      (layer_output) -> Residual [batch seq hidden_size]: The residual stream leaving the block, a tensor even when the block returns a tuple
      (layer_input) -> Residual [batch seq hidden_size]: The residual stream entering the block
    )
    (2): Block(
      (mlp): Mlp(
        (down_proj): Linear(in_features=8, out_features=4, bias=False)
        (mlp_neurons) -> Neurons [batch seq intermediate_size]: What the down projection receives: act(gate)·up on a gated MLP, the activation itself otherwise
        (mlp_output) -> Residual [batch seq hidden_size]: What the MLP adds to the residual stream: here
      )
      (layer_output) -> Residual [batch seq hidden_size]: The residual stream leaving the block, a tensor even when the block returns a tuple
      (layer_input) -> Residual [batch seq hidden_size]: The residual stream entering the block
    )
  )
  (logits) -> Logits [batch seq vocab_size]: The logits the model returns, after anything it does past lm_head (a softcap, a scale)
  (token_embeddings) -> Residual [batch seq hidden_size]: The embedding module's output; layers[0].input is what enters the first block
  (final_norm_output) -> Residual [batch seq hidden_size]: The residual stream after the final norm, what lm_head reads
  (next_token_probs) -> NextTokenProbs [batch vocab_size]: The next-token distribution at the last position; derived, read-only
  (input_ids) -> Tokens [batch seq]: The token ids the model was called with
  (input_size): [batch, seq] of the current call; read-only
))");
}

TEST_CASE("for machines: parameters with shapes and ties, values, why one is absent") {
  json tree = printout_json(test::tiny_plan());
  CHECK(tree["class"] == "TinyForCausalLM");
  CHECK(tree["family"] == "tiny");
  CHECK(tree["parameter_count"] == 16 * 4 + 2 * 4 * 4 + 8 * 4);
  REQUIRE(tree["modules"].size() == 2);  // as the reference has them: containers too
  const json& head = tree["modules"][1];
  CHECK(head["path"] == "lm_head");
  CHECK(head["parameters"][0]["shape"] == json{16, 4});
  CHECK(head["parameters"][0]["tied_to"] == "model.embed_tokens.weight");
  const json& layers = tree["modules"][0]["modules"][1];
  CHECK(layers["path"] == "layers");
  CHECK(layers["native_path"] == "model.layers");
  REQUIRE(layers["modules"].size() == 3);
  const json& values = layers["modules"][0]["modules"][0]["values"];
  CHECK(values[0]["name"] == "layers.0.mlp.mlp_neurons");
  CHECK(values[0]["absent"] == "its <first> block has none");
  CHECK(values[1]["axes"] == json{"batch", "seq", "hidden_size"});
  CHECK(values[1]["sizes"] == json{nullptr, nullptr, 4});
}

}  // namespace gemloupe
