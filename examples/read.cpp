// Reads values out of one run, in the order of the forward pass: read MODEL PROMPT
#include <ATen/ATen.h>

#include <cstdio>

#include "gemloupe/model.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]), 2;
  gemloupe::Model model = gemloupe::Model::load(argv[1]);
  gemloupe::Trace trace = model.trace(argv[2]);
  // A read runs the model up to the value and gives the live tensor; a snapshot stays as it is whatever is edited
  // later.
  at::Tensor before = trace.snapshot(trace.read("layers.0.layer_input"));
  at::Tensor attention = trace.snapshot(trace.read("layers.0.self_attn.attention_output"));
  at::Tensor mlp = trace.snapshot(trace.read("layers.0.mlp.mlp_output"));
  at::Tensor after = trace.snapshot(trace.read("layers.0.layer_output"));
  trace.finish();
  std::printf("the block adds what its sublayers contribute: %s\n",
              at::equal(before + attention + mlp, after) ? "true" : "false");
}
