// gemloupe show: the tree of modules and values.
#include "common.h"
#include "gemloupe/report/printout.h"

namespace gemloupe::cli {

void add_show(CLI::App& app, const Globals&) {
  struct Command {
    ModelOptions model;
    bool as_json = false;
  };
  auto command = std::make_shared<Command>();
  CLI::App* show = app.add_subcommand("show", "The model's modules and values, as print(model) shows them");
  command->model.add_to(*show, false);
  show->add_flag("--json", command->as_json, "For machines: every module, parameter name, shape and value");
  show->footer(
      "A line with -> is a value that can be read and changed; its name is its path in the tree:\n"
      "layers.5.mlp.mlp_output. Only the config is read, no weights; MODEL may also be the name or hub id of a\n"
      "released checkpoint that is not here.\n\n"
      "Examples:\n"
      "  gemloupe show gemma-4-E2B\n"
      "  gemloupe show gemma.gguf --json | jq -r '.. | .values? // empty | .[].name'");
  show->callback([command] {
    Plan plan = command->model.plan();
    if (command->as_json)
      print_json(printout_json(plan));
    else
      print(printout(plan) + "\n");
  });
}

}  // namespace gemloupe::cli
