// Which stream carries the answer: activation patching over layers and positions, and its estimate by one gradient.
//   sweep MODEL CLEAN_PROMPT CORRUPTED_PROMPT
#include <ATen/ATen.h>
#include <gemloupe/interventions.h>
#include <gemloupe/report/tokens.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 4) return std::cerr << "usage: sweep MODEL CLEAN_PROMPT CORRUPTED_PROMPT\n", 2;
  namespace gi = gemloupe::interventions;
  const gemloupe::Model model = gemloupe::Model::load(argv[1]);
  const gemloupe::Prompt clean = model.prompt(argv[2]), corrupted = model.prompt(argv[3]);

  const int64_t best = model.trace(clean).read("next_token_probs").argmax(-1).item<int64_t>();
  const gi::Metric logit = [best](const at::Tensor& logits) { return logits.select(1, best).mean(); };
  std::cout << "the logit of \"" << gemloupe::token_text(model.tokenizer(), best) << "\"\n";

  const gi::Patching patched = gi::activation_patching(model, clean, corrupted, logit);
  const gi::Patching estimated = gi::attribution_patching(model, clean, corrupted, logit);
  std::cout << "clean " << patched.clean << ", corrupted " << patched.corrupted << "\n";
  for (int64_t layer = 0; layer < patched.patched.size(0); ++layer)
    for (int64_t position = 0; position < patched.patched.size(1); ++position)
      std::cout << layer << "\t" << position << "\t" << patched.patched[layer][position].item<double>() << "\t"
                << estimated.patched[layer][position].item<double>() << "\n";

  const gi::LogitAttribution terms = gi::direct_logit_attribution(model, clean, {best});
  std::cout << "its terms sum to " << terms.total().item<double>() << "\n";
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
