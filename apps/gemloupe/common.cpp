#include "common.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/report/tokens.h"
#include "log.h"

namespace gemloupe::cli {

void ModelOptions::add_to(CLI::App& command, bool runs) {
  command.add_option("MODEL", model_, "A folder, a .gguf file, or a hub id in the local cache (google/gemma-3-270m)")
      ->required();
  if (runs) {
    command.add_option("--dtype", dtype_, "float32, bfloat16 or float16; left out: the checkpoint's own");
    command.add_option(
        "--attn", attn_,
        "eager (transformers' operations, bit for bit) or sdpa (the fast default, but Gemma 2 without its softcap)");
    command.add_option("--device", device_, "Where to run: cpu, cuda:0")->capture_default_str();
  }
  command.add_option("--revision", revision_, "Of a hub id: a branch, a tag or a commit");
  command.add_option("--ignore-config-key", ignored_, "A key of config.json that has no meaning for the forward pass")
      ->allow_extra_args(false);
}

LoadOptions ModelOptions::options() const {
  LoadOptions options;
  if (!dtype_.empty()) options.dtype = dtype_;
  if (!revision_.empty()) options.revision = revision_;
  options.device = device_;
  options.attn_implementation = attn_;
  options.ignore_config_keys = ignored_;
  return options;
}

Model ModelOptions::load(const Globals& globals) const {
  if (globals.threads) at::set_num_threads(globals.threads);
  Timed timed("the model was loaded");
  Model model = Model::load(model_, options());
  for (const std::string& warning : model.plan().warnings) log(Level::Warning, warning);
  log(Level::Info, model_ + ": " + model.plan().class_name + ", " + std::to_string(model.plan().num_layers()) +
                       " layers, " + dtype_name(model.weights().dtype()) + ", " + model.attn_implementation() +
                       " attention, " + std::to_string(at::get_num_threads()) + " threads");
  return model;
}

Checkpoint ModelOptions::checkpoint() const {
  Timed timed("the checkpoint was opened");
  return Checkpoint::open(model_, options().revision, Checkpoint::Weights::Optional);
}

QuantizeOptions ModelOptions::quantize_options() const {
  QuantizeOptions out;
  out.revision = options().revision;
  out.ignore_config_keys = ignored_;
  return out;
}

Plan ModelOptions::plan() const {
  Timed timed("the config was read");
  return plan_of(model_, options());
}

void PromptOptions::add_to(CLI::App& command) {
  command.add_option("PROMPT", text_, "A text")->required();
  command.add_flag("--ids", is_ids_, "PROMPT is a list of token ids, \"2,818,5\", used as it is");
}

namespace {

int64_t integer_of(const std::string& text) {
  std::string trimmed;
  for (char c : text)
    if (c != ' ') trimmed += c;
  int64_t id = 0;
  auto [end, error] = std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), id);
  if (error != std::errc() || end != trimmed.data() + trimmed.size())
    throw BadPrompt("with --ids the prompt is a list of token ids such as \"2,818,5\"; '" + text + "' is none.");
  return id;
}

}  // namespace

Prompt PromptOptions::prompt(const Model& model) const {
  if (!is_ids_) {
    Timed timed("the prompt was tokenized");
    return model.prompt(text_);
  }
  std::vector<int64_t> ids;
  for (const std::string& id : split(text_, ',')) ids.push_back(integer_of(id));
  return prompt_of({ids}, model.pad_token());
}

std::function<std::string(int64_t)> token_texts(const Model& model) {
  const TokenizerFiles& files = model.tokenizer_files();
  if (!files.tokenizer_json && !files.tokenizer_model && !files.gguf)
    return [](int64_t id) { return "#" + std::to_string(id); };
  return [tokenizer = model.tokenizer()](int64_t id) { return token_text(tokenizer, id); };
}

std::vector<int64_t> integers(const at::Tensor& tensor) {
  at::Tensor flat = tensor.to(at::kCPU, at::kLong).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

Provenance provenance(const Model& model, const std::string& schema, const Prompt& prompt) {
  return {schema,
          model.checkpoint().digest(),
          dtype_name(model.weights().dtype()),
          model.attn_implementation(),
          integers(prompt.ids),
          json()};
}

size_t screen_width() {
  winsize size{};
  bool known = ::isatty(STDOUT_FILENO) && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 100;
}

void print(std::string_view text) {
  while (!text.empty()) {
    ssize_t done = ::write(STDOUT_FILENO, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw CannotWrite(std::string("standard output cannot be written: ") + std::strerror(errno) + ".");
    text.remove_prefix(static_cast<size_t>(done));
  }
}

void print_json(const json& value) {
  print(value.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace gemloupe::cli
