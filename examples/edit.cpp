// Changes values, and sees what follows: in place, by a function, and from another run (patching).
//   edit MODEL PROMPT OTHER_PROMPT
#include <ATen/ATen.h>
#include <gemloupe/model.h>
#include <gemloupe/report/tokens.h>

#include <exception>
#include <iostream>

namespace {

void say(const gemloupe::Model& model, const char* what, gemloupe::Trace& trace) {
  auto [probability, id] = trace.read("next_token_probs")[0].max(0);
  std::cout << what << ": \"" << gemloupe::token_text(model.tokenizer(), id.item<int64_t>()) << "\" "
            << probability.item<float>() << "\n";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return std::cerr << "usage: edit MODEL PROMPT OTHER_PROMPT\n", 2;
  gemloupe::Model model = gemloupe::Model::load(argv[1]);

  gemloupe::Trace plain = model.trace(argv[2]);
  say(model, "unchanged", plain);

  // What is read is the live tensor: writing into it is an edit.
  gemloupe::Trace ablated = model.trace(argv[2]);
  ablated.read("layers.2.self_attn.attention_output").zero_();
  say(model, "without the attention of layer 2", ablated);

  gemloupe::Trace scaled = model.trace(argv[2]);
  scaled.edit("layers.1.mlp.mlp_output", [](at::Tensor value) { return value * 2; });
  say(model, "with the MLP of layer 1 doubled", scaled);

  // The last position's stream of another prompt, put into this one.
  gemloupe::Trace source = model.trace(argv[3]);
  at::Tensor stream = source.snapshot(source.read("layers.3.layer_output").select(1, -1));
  gemloupe::Trace patched = model.trace(argv[2]);
  patched.read("layers.3.layer_output").select(1, -1).copy_(stream);
  say(model, "with the other prompt's stream after layer 3", patched);
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
