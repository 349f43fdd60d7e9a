// gemloupe generate: the model's own continuation, greedy, as it comes.
#include <iostream>

#include "common.h"
#include "gemloupe/base/errors.h"
#include "gemloupe/text/chat.h"
#include "log.h"

namespace gemloupe::cli {
namespace {

struct GenerateCommand {
  ModelOptions model;
  PromptOptions prompt;
  int64_t most = 64;
  bool chat = false, as_json = false;

  void run(const Globals& globals) const {
    if (chat && prompt.is_ids()) throw BadOption("--chat writes its prompt from a text; leave --ids out.");
    Model loaded = model.load(globals);
    Prompt ids = chat ? loaded.prompt(chat_text(loaded)) : prompt.prompt(loaded);
    bool has_text = !prompt.is_ids();
    std::optional<TokenStream> stream;
    if (has_text) stream.emplace(loaded.tokenizer(), true);
    std::vector<int64_t> made;
    GenerateOptions options;
    options.max_new_tokens = most;
    options.on_step = [&](const std::vector<int64_t>& tokens) {
      made.push_back(tokens[0]);
      if (!as_json) print(stream ? stream->push(tokens[0]) : (made.size() > 1 ? "," : "") + std::to_string(tokens[0]));
      return true;
    };
    {
      Timed timed("the generation");
      loaded.generate(ids, options);
    }
    if (!as_json) return print((stream ? stream->finish() : "") + "\n");
    json out = to_json(provenance(loaded, "gemloupe.generate/1", ids));
    out["ids"] = made;
    if (has_text) out["text"] = loaded.tokenizer().decode(made, true);
    print_json(out);
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
  generate->add_flag("--json", command->as_json, "For machines: ids and text, at the end");
  generate->footer(
      "The likeliest token is taken at each step (greedy), so the same prompt gives the same text; it is printed as "
      "it\n"
      "comes. The text ends at the checkpoint's end-of-sequence tokens.\n\n"
      "Examples:\n"
      "  gemloupe generate google/gemma-3-270m \"Once upon a time\" -n 100\n"
      "  gemloupe generate google/gemma-3-270m-it \"Why is the sky blue?\" --chat");
  generate->callback([command, &globals] { command->run(globals); });
}

}  // namespace gemloupe::cli
