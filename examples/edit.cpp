// Halves what one MLP adds to the stream, and says how far the logits move: edit MODEL PROMPT
#include <ATen/ATen.h>

#include <cstdio>

#include "gemloupe/model.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]), 2;
  gemloupe::Model model = gemloupe::Model::load(argv[1]);
  auto logits = [&](bool edited) {
    gemloupe::Trace trace = model.trace(argv[2]);
    if (edited) trace.edit("layers.0.mlp.mlp_output", [](at::Tensor value) { return value * 0.5; });
    return trace.snapshot(trace.read("logits"));
  };
  std::printf("logits move by at most %.4f\n", (logits(true) - logits(false)).abs().max().item<double>());
}
