// Loads a checkpoint and says what it is.
//   load MODEL
#include <gemloupe/model.h>
#include <gemloupe/report/printout.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 2) return std::cerr << "usage: load MODEL\n", 2;
  gemloupe::Model model = gemloupe::Model::load(argv[1]);
  const gemloupe::Plan& plan = model.plan();
  std::cout << plan.class_name << ": " << plan.num_layers() << " layers, hidden size " << plan.sizes.hidden_size << ", "
            << gemloupe::dtype_name(model.weights().dtype()) << "\n\n"
            << gemloupe::printout(plan) << "\n";
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
