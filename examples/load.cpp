// Loads a checkpoint and says what it is: load MODEL
#include <cstdio>

#include "gemloupe/base/errors.h"
#include "gemloupe/model.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s MODEL\n", argv[0]), 2;
  try {
    gemloupe::Model model = gemloupe::Model::load(argv[1]);
    const gemloupe::Plan& plan = model.plan();
    std::printf("%s: %lld blocks, %lld wide, %s\n", plan.class_name.c_str(), static_cast<long long>(plan.num_layers()),
                static_cast<long long>(plan.sizes.hidden_size), gemloupe::dtype_name(model.weights().dtype()).c_str());
  } catch (const gemloupe::Error& error) {
    return std::fprintf(stderr, "%s (docs/errors/%s.md)\n", error.what(), std::string(error.slug()).c_str()), 1;
  }
}
