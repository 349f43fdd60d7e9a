// The logit lens by hand: each layer's stream, at the last position, through the model's own norm and head.
//   lens MODEL PROMPT
#include <ATen/ATen.h>
#include <gemloupe/model.h>
#include <gemloupe/report/tokens.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 3) return std::cerr << "usage: lens MODEL PROMPT\n", 2;
  gemloupe::Model model = gemloupe::Model::load(argv[1]);
  gemloupe::Trace trace = model.trace(argv[2]);
  for (int64_t i = 0; i < model.plan().num_layers(); ++i) {
    at::Tensor stream = trace.read("layers." + std::to_string(i) + ".layer_output").select(1, -1);
    auto [probability, id] = model.project_on_vocab(stream)[0].softmax(-1, at::kFloat).max(0);
    std::cout << i << "\t" << probability.item<float>() << "\t\""
              << gemloupe::token_text(model.tokenizer(), id.item<int64_t>()) << "\"\n";
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
