// Reads values of one run, in the order of the forward pass, and checks the identity of a block.
//   read MODEL PROMPT
#include <ATen/ATen.h>
#include <gemloupe/model.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 3) return std::cerr << "usage: read MODEL PROMPT\n", 2;
  gemloupe::Model model = gemloupe::Model::load(argv[1]);
  gemloupe::Trace trace = model.trace(argv[2]);

  // Each read runs the model up to that value, and no further.
  at::Tensor input = trace.read("layers.2.layer_input");
  at::Tensor attention = trace.read("layers.2.self_attn.attention_output");
  at::Tensor mlp = trace.read("layers.2.mlp.mlp_output");
  at::Tensor output = trace.read("layers.2.layer_output");

  std::cout << "layer 2 leaves a stream of shape " << output.sizes() << ", norm " << output.norm().item<float>() << "\n"
            << "input + attention + mlp == output: " << std::boolalpha << at::equal(input + attention + mlp, output)
            << "\n";
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
