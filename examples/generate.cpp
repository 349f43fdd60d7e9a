// Continues a prompt, printing each token as it comes.
//   generate MODEL PROMPT
#include <gemloupe/model.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 3) return std::cerr << "usage: generate MODEL PROMPT\n", 2;
  gemloupe::Model model = gemloupe::Model::load(argv[1]);
  gemloupe::TokenStream text(model.tokenizer(), /*skip_special_tokens=*/true);
  gemloupe::GenerateOptions options;
  options.max_new_tokens = 16;
  options.on_step = [&](const std::vector<int64_t>& tokens) {
    std::cout << text.push(tokens[0]) << std::flush;
    return true;  // false would end it here
  };
  model.generate(model.prompt(argv[2]), options);
  std::cout << text.finish() << "\n";
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
