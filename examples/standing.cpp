// Edits that every run makes, and shapes without a run.
//   standing MODEL PROMPT
#include <ATen/ATen.h>
#include <gemloupe/model.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 3) return std::cerr << "usage: standing MODEL PROMPT\n", 2;
  const gemloupe::Model model = gemloupe::Model::load(argv[1]);
  const gemloupe::Prompt prompt = model.prompt(argv[2]);

  // No weight is read and nothing is computed.
  gemloupe::Trace scan = model.scan(prompt);
  std::cout << "queries of layer 2: " << scan.read("layers.2.self_attn.attention_queries").sizes() << "\n";

  // Weights are shared; `model` itself stays as it is.
  const gemloupe::RowId row = model.plan().find_row("layers.2.self_attn.attention_output");
  const gemloupe::Model edited =
      model.with_edits({{row, [](at::Tensor live) { return live.zero_(); }, "layer 2 attends to nothing"}});
  for (const auto& edit : edited.edits()) std::cout << "edited: " << edit.text << "\n";

  gemloupe::GenerateOptions options;
  options.max_new_tokens = 16;
  for (const gemloupe::Model& one : {model, edited}) {
    const at::Tensor ids = one.generate(prompt, options)[0].slice(0, prompt.ids.size(1)).contiguous();
    const auto* first = ids.const_data_ptr<int64_t>();
    std::cout << model.tokenizer().decode(std::vector<int64_t>(first, first + ids.numel()), true) << "\n";
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
