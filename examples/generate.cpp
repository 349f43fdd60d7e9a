// Greedy continuation, token by token: generate MODEL PROMPT
#include <cstdio>

#include "gemloupe/model.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]), 2;
  gemloupe::Model model = gemloupe::Model::load(argv[1]);
  gemloupe::TokenStream text(model.tokenizer());
  gemloupe::GenerateOptions options;
  options.max_new_tokens = 16;
  options.on_step = [&](const std::vector<int64_t>& tokens) {
    std::printf("%s", text.push(tokens[0]).c_str());
    std::fflush(stdout);
    return true;  // false ends it
  };
  model.generate(model.prompt(argv[2]), options);
  std::printf("%s\n", text.finish().c_str());
}
