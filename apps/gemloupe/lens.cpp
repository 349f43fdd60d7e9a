// gemloupe lens: what each block would say next.
#include "gemloupe/report/lens.h"

#include "common.h"
#include "gemloupe/store/atomic_file.h"
#include "log.h"

namespace gemloupe::cli {
namespace {

struct LensCommand {
  ModelOptions model;
  PromptOptions prompt;
  std::string html;
  int top = 5;
  bool as_json = false, every_position = false;

  void run(const Globals& globals) const {
    Model loaded = model.load(globals);
    Prompt ids = prompt.prompt(loaded);
    Lens lens = read(loaded, ids, globals);
    Provenance origin = provenance(loaded, "gemloupe.lens/1", ids);
    if (!html.empty()) {
      Document page = lens_page(lens);
      page.origin = to_json(origin);
      write_file(html, to_html(page));
    }
    if (as_json) {
      json out = to_json(origin);
      out.update(lens_json(lens));
      print_json(out);
    } else {
      print(to_text(lens_table(lens), 1000));
    }
  }

  Lens read(const Model& loaded, const Prompt& ids, const Globals& globals) const {
    Timed timed("the layers were read");
    Progress progress("layer", loaded.plan().num_layers(), globals.quiet);
    LensOptions options;
    options.top = top;
    options.every_position = every_position || !html.empty();
    options.project = [&](const at::Tensor& hidden) { return loaded.project_on_vocab(hidden); };
    options.token_text = token_texts(loaded);
    options.on_layer = [&](int layer) { progress.at(layer); };
    Trace trace = loaded.trace(ids);
    return read_lens(trace, options);
  }
};

}  // namespace

void add_lens(CLI::App& app, const Globals& globals) {
  auto command = std::make_shared<LensCommand>();
  CLI::App* lens = app.add_subcommand("lens", "What each layer would say next: the logit lens");
  command->model.add_to(*lens, true);
  command->prompt.add_to(*lens);
  lens->add_option("--top", command->top, "How many tokens of each layer")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  lens->add_option("--html", command->html, "Also write a page: layers x positions, probability as colour");
  lens->add_flag("--json", command->as_json, "For machines: ids, tokens and probabilities");
  lens->add_flag("--every-position", command->every_position, "With --json: all positions, not the last one alone");
  lens->footer(
      "The residual stream that leaves each layer goes through the model's own final norm and head\n"
      "(project_on_vocab). A row a layer, the last position; the last row is the model's own answer.\n\n"
      "Examples:\n"
      "  gemloupe lens google/gemma-3-270m \"The Eiffel Tower is in the city of\"\n"
      "  gemloupe lens gemma.gguf \"2 + 2 =\" --html lens.html --top 10\n"
      "  gemloupe lens gemma.gguf \"2 + 2 =\" --json | jq '.layers[-1][-1][0].token'");
  lens->callback([command, &globals] { command->run(globals); });
}

}  // namespace gemloupe::cli
