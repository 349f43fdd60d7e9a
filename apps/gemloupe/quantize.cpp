// gemloupe quantize: a checkpoint as a GGUF file.
#include "gemloupe/quantize.h"

#include <ATen/Parallel.h>

#include "common.h"
#include "log.h"

namespace gemloupe::cli {
namespace {

struct QuantizeCommand {
  ModelOptions model;
  std::string out, type = "q8_0";
  bool as_json = false;

  void run(const Globals& globals) const {
    if (globals.threads) at::set_num_threads(globals.threads);
    Timed timed("the file was written");
    QuantizeOptions options = model.quantize_options();
    options.type = type;
    std::unique_ptr<Progress> progress;
    options.on_tensor = [&](int64_t done, int64_t of) {
      if (!progress) progress = std::make_unique<Progress>("tensor", of, globals.quiet);
      progress->at(done);
    };
    const Quantized done = quantize(model.name(), out, options);
    progress.reset();
    for (const std::string& note : done.notes) log(Level::Warning, note);
    if (as_json)
      return print_json(json{{"path", out}, {"type", type}, {"tensors", done.tensors}, {"bytes", done.bytes}});
    print(out + ": " + std::to_string(done.tensors) + " tensors, " + std::to_string(done.bytes) + " bytes\n");
  }
};

}  // namespace

void add_quantize(CLI::App& app, const Globals& globals) {
  auto command = std::make_shared<QuantizeCommand>();
  CLI::App* quantize = app.add_subcommand("quantize", "A checkpoint as one GGUF file, its matrices quantised");
  command->model.add_to(*quantize, false);
  quantize->add_option("OUT", command->out, "The file to write, OUT.gguf")->required();
  quantize->add_option("--type", command->type, "Of the matrices: q8_0, bf16, f16 or f32; vectors are float32")
      ->capture_default_str();
  quantize->add_flag("--json", command->as_json, "For machines: the path, the type, how many tensors and bytes");
  quantize->footer(
      "The file has the text model, the vocabulary and the chat template, under llama.cpp's names: it can take "
      "MODEL's\n"
      "place here, and llama.cpp reads it. It appears whole or not at all. Of a multimodal checkpoint the towers are\n"
      "left out. Matrices whose rows are no multiple of 32 keep 16 or 32 bits; a config that means something that a\n"
      "GGUF file cannot say is refused.\n\n"
      "Examples:\n"
      "  gemloupe quantize google/gemma-3-270m gemma.gguf\n"
      "  gemloupe quantize my-finetune/ finetune.gguf --type bf16");
  quantize->callback([command, &globals] { command->run(globals); });
}

}  // namespace gemloupe::cli
