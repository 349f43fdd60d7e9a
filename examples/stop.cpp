// Reads one block's output and stops: what lies above never runs. stop MODEL PROMPT
#include <ATen/ATen.h>

#include <cstdio>

#include "gemloupe/base/errors.h"
#include "gemloupe/model.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]), 2;
  gemloupe::Model model = gemloupe::Model::load(argv[1]);
  gemloupe::Trace trace = model.trace(argv[2]);
  at::Tensor stream = trace.snapshot(trace.read("layers.0.layer_output"));
  trace.stop();
  std::printf("the stream after block 0 has norm %.4f at the last position\n",
              stream.select(1, -1).norm().item<double>());
  try {
    trace.read("logits");
  } catch (const gemloupe::OutsideTrace& error) {
    std::printf("refused: %s\n", error.what());
  }
}
