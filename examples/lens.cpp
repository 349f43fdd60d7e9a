// The logit lens: what each block's stream would say if it were the last. lens MODEL PROMPT
#include <ATen/ATen.h>

#include <cstdio>
#include <string>

#include "gemloupe/model.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]), 2;
  gemloupe::Model model = gemloupe::Model::load(argv[1]);
  gemloupe::Trace trace = model.trace(argv[2]);
  for (int64_t layer = 0; layer < model.plan().num_layers(); ++layer) {
    at::Tensor stream = trace.read("layers." + std::to_string(layer) + ".layer_output").select(1, -1);
    auto [probability, token] = model.project_on_vocab(stream).softmax(-1, at::kFloat).max(-1);
    const int64_t id = token.item<int64_t>();
    std::printf("%3lld  %.3f  %s\n", static_cast<long long>(layer), probability.item<double>(),
                model.tokenizer().decode({&id, 1}).c_str());
  }
}
