// Ends a run early: what is not asked for is not computed. And what happens to a value that the run has passed.
//   stop MODEL PROMPT
#include <ATen/ATen.h>
#include <gemloupe/base/errors.h>
#include <gemloupe/model.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 3) return std::cerr << "usage: stop MODEL PROMPT\n", 2;
  gemloupe::Model model = gemloupe::Model::load(argv[1]);
  gemloupe::Trace trace = model.trace(argv[2]);
  at::Tensor pattern = trace.read("layers.0.self_attn.attention_probabilities");
  std::cout << "the last position of head 0 attends with " << pattern[0][0][-1] << "\n";
  try {
    trace.read("layers.0.layer_input");
  } catch (const gemloupe::OutOfOrder& error) {
    std::cout << "refused: " << error.what() << "\n";
  }
  trace.stop();  // layers 1 and up never run
  try {
    trace.read("logits");
  } catch (const gemloupe::OutsideTrace& error) {
    std::cout << "refused: " << error.what() << "\n";
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
