// What several subcommands share: the options that say which model and prompt, and how things are printed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "gemloupe/model.h"
#include "gemloupe/quantize.h"
#include "gemloupe/report/provenance.h"

namespace gemloupe::cli {

/// MODEL, --revision and --ignore-config-key; with `runs`, --dtype, --attn and --device too.
class ModelOptions {
 public:
  void add_to(CLI::App& command, bool runs);

  Model load(const Globals& globals) const;
  Plan plan() const;  ///< without reading weights
  Checkpoint checkpoint() const;
  const std::string& name() const { return model_; }
  QuantizeOptions quantize_options() const;

 private:
  LoadOptions options() const;
  std::string model_, dtype_, attn_, device_ = "cpu", revision_;
  std::vector<std::string> ignored_;
};

/// PROMPT and --ids.
class PromptOptions {
 public:
  void add_to(CLI::App& command);
  Prompt prompt(const Model& model) const;
  const std::string& text() const { return text_; }
  bool is_ids() const { return is_ids_; }

 private:
  std::string text_;
  bool is_ids_ = false;
};

/// How the model's tokens are shown; by number where it has no tokenizer.
std::function<std::string(int64_t)> token_texts(const Model& model);

Provenance provenance(const Model& model, const std::string& schema, const Prompt& prompt);

/// The numbers of a tensor of integers.
std::vector<int64_t> integers(const at::Tensor& tensor);

/// The width to which text wraps: the terminal's, else 100.
size_t screen_width();

/// Writes to standard output. Errors: CannotWrite.
void print(std::string_view text);
void print_json(const json& value);

}  // namespace gemloupe::cli
