// gemloupe generate: the model's own continuation, as it comes.
#include <algorithm>
#include <iostream>

#include "common.h"
#include "edit.h"
#include "gemloupe/base/errors.h"
#include "gemloupe/text/chat.h"
#include "log.h"

namespace gemloupe::cli {
namespace {

struct GenerateCommand {
  ModelOptions model;
  PromptOptions prompt;
  int64_t most = 64;
  bool chat = false, as_json = false, sample = false;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;
  std::vector<std::string> stops, edits;

  void run(const Globals& globals) const {
    if (chat && prompt.is_ids()) throw BadOption("--chat writes its prompt from a text; leave --ids out.");
    Model loaded = with_edits(model.load(globals), edits);
    Prompt ids = chat ? loaded.prompt(chat_text(loaded)) : prompt.prompt(loaded);
    bool has_text = !prompt.is_ids();
    std::optional<TokenStream> stream;
    if (has_text) stream.emplace(loaded.tokenizer(), true);
    std::vector<int64_t> made;
    std::string text;
    GenerateOptions options = sampling(loaded);
    options.on_step = [&](const std::vector<int64_t>& tokens) {
      made.push_back(tokens[0]);
      if (!as_json) print(stream ? stream->push(tokens[0]) : (made.size() > 1 ? "," : "") + std::to_string(tokens[0]));
      if (!stops.empty()) text = loaded.tokenizer().decode(made, false);
      return std::none_of(stops.begin(), stops.end(),
                          [&](const std::string& stop) { return text.find(stop) != std::string::npos; });
    };
    {
      Timed timed("the generation");
      loaded.generate(ids, options);
    }
    if (!as_json) return print((stream ? stream->finish() : "") + "\n");
    json out = to_json(provenance(loaded, "gemloupe.generate/1", ids));
    out["ids"] = made;
    if (has_text) out["text"] = loaded.tokenizer().decode(made, true);
    if (!edits.empty()) out["edits"] = edits;
    print_json(out);
  }

  /// The likeliest token, unless drawing is asked for: then as the checkpoint's generation_config.json says, where no
  /// option says otherwise.
  GenerateOptions sampling(const Model& loaded) const {
    GenerateOptions options;
    options.do_sample = sample || temperature || top_k || top_p || min_p || seed;
    if (options.do_sample) options.sampling = loaded.generate_defaults().sampling;
    options.sampling.temperature = temperature.value_or(options.sampling.temperature);
    options.sampling.top_k = top_k.value_or(options.sampling.top_k);
    options.sampling.top_p = top_p.value_or(options.sampling.top_p);
    options.sampling.min_p = min_p.value_or(options.sampling.min_p);
    options.sampling.repetition_penalty = repetition_penalty.value_or(options.sampling.repetition_penalty);
    options.seed = seed;
    options.max_new_tokens = most;
    return options;
  }

  std::string chat_text(const Model& loaded) const {
    const auto& chat_template = loaded.tokenizer_files().chat_template;
    if (!chat_template)
      throw BadTokenizer(
          "this checkpoint has no chat template: it was not made for chats. Leave --chat out, or use an "
          "instruction-tuned one (-it).");
    json options = special_token_texts(loaded.tokenizer());
    options["add_generation_prompt"] = true;
    return render_chat(*chat_template, json::array({{{"role", "user"}, {"content", prompt.text()}}}), options);
  }
};

}  // namespace

void add_generate(CLI::App& app, const Globals& globals) {
  auto command = std::make_shared<GenerateCommand>();
  CLI::App* generate = app.add_subcommand("generate", "Continue a prompt, token by token");
  command->model.add_to(*generate, true);
  command->prompt.add_to(*generate);
  generate->add_option("-n,--max-new-tokens", command->most, "How many tokens at most")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  generate->add_flag("--chat", command->chat, "PROMPT is a user's message, put into the checkpoint's chat template");
  generate->add_flag("--sample", command->sample, "Draw tokens, as the checkpoint's generation_config.json says");
  generate->add_option("--temperature", command->temperature, "Draw; above 1 more evenly, below 1 less");
  generate->add_option("--top-k", command->top_k, "Draw among so many of the likeliest tokens");
  generate->add_option("--top-p", command->top_p, "Draw among the likeliest that reach this probability together");
  generate->add_option("--min-p", command->min_p, "Draw among those of this share of the likeliest's probability");
  generate->add_option("--seed", command->seed, "Draw; the same seed draws the same tokens")
      ->check(CLI::NonNegativeNumber);
  generate->add_option("--repetition-penalty", command->repetition_penalty, "Divides the logits of tokens there are");
  generate->add_option("--stop", command->stops, "End when this text has come; may be given again and again")
      ->allow_extra_args(false)
      ->check([](const std::string& text) { return text.empty() ? std::string("is empty") : std::string(); });
  generate->add_option("--edit", command->edits, "Change a value in every pass: 'NAME OP OPERAND', as of trace")
      ->allow_extra_args(false);
  generate->add_flag("--json", command->as_json, "For machines: ids and text, at the end");
  generate->footer(
      "The likeliest token is taken at each step (greedy), so the same prompt gives the same text, unless an option\n"
      "says to draw. It is printed as it comes, and ends at the checkpoint's end-of-sequence tokens.\n\n"
      "Examples:\n"
      "  gemloupe generate google/gemma-3-270m \"Once upon a time\" -n 100\n"
      "  gemloupe generate google/gemma-3-270m-it \"Why is the sky blue?\" --chat\n"
      "  gemloupe generate gemma.gguf \"Once upon a time\" --temperature 0.7 --seed 1\n"
      "  gemloupe generate gemma.gguf \"Once upon a time\" --edit 'layers.5.mlp.mlp_output *= 0.5'");
  generate->callback([command, &globals] { command->run(globals); });
}

}  // namespace gemloupe::cli
