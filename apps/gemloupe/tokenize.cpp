// gemloupe tokenize: a text as the model sees it.
#include <fstream>
#include <iostream>
#include <iterator>

#include "common.h"
#include "gemloupe/base/errors.h"
#include "gemloupe/base/interrupt.h"
#include "gemloupe/report/tokens.h"
#include "gemloupe/report/width.h"
#include "log.h"

namespace gemloupe::cli {
namespace {

struct TokenizeCommand {
  ModelOptions model;
  std::string text, file;
  bool as_json = false, no_bos = false;

  std::string input() const {
    if (file.empty()) return text;
    if (file == "-") {
      std::string all(std::istreambuf_iterator<char>(std::cin), {});
      throw_if_interrupted();
      return all;
    }
    std::ifstream in(file, std::ios::binary);
    if (!in) throw NotFound(file + ": cannot be read. --file takes a text file, or - for standard input.");
    return {std::istreambuf_iterator<char>(in), {}};
  }

  Tokenizer tokenizer() const {
    Checkpoint checkpoint = model.checkpoint();
    Timed timed("the tokenizer was read");
    return Tokenizer::load(checkpoint.tokenizer_files());
  }

  void run() const {
    std::string input_text = input();
    Tokenizer words = tokenizer();
    Encoding encoding = words.encode(input_text, !no_bos);
    if (as_json) {
      std::vector<std::string> tokens;
      for (int64_t id : encoding.ids) tokens.push_back(words.id_to_token(id).value_or(""));
      print_json(json{{"ids", encoding.ids}, {"tokens", tokens}, {"offsets", encoding.offsets}});
      return;
    }
    std::string lines;
    for (int64_t id : encoding.ids) {
      std::string number = std::to_string(id);
      lines += padded("", number.size() < 6 ? 6 - number.size() : 0) + number + "  " +
               quoted_token(token_text(words, id)) + "\n";
    }
    print(lines);
  }
};

}  // namespace

void add_tokenize(CLI::App& app, const Globals&) {
  auto command = std::make_shared<TokenizeCommand>();
  CLI::App* tokenize = app.add_subcommand("tokenize", "A text as token ids, as the checkpoint's own tokenizer cuts it");
  command->model.add_to(*tokenize, false);
  auto* text = tokenize->add_option("TEXT", command->text, "A text");
  auto* file = tokenize->add_option("--file", command->file, "Read the text from a file instead; - is standard input");
  text->excludes(file);
  tokenize->add_flag("--no-bos", command->no_bos, "Without the special tokens that a prompt begins with");
  tokenize->add_flag("--json", command->as_json, "For machines: ids, tokens and byte offsets");
  tokenize->footer(
      "A line a token: its id and its text. <bos> is added once; a text that begins with it gets no second.\n\n"
      "Examples:\n"
      "  gemloupe tokenize google/gemma-3-270m \"Hello world\"\n"
      "  gemloupe tokenize gemma.gguf --file book.txt --json | jq '.ids | length'");
  tokenize->callback([command, text, file] {
    if (text->empty() && file->empty()) throw CLI::RequiredError("TEXT or --file");
    command->run();
  });
}

}  // namespace gemloupe::cli
