// gemloupe support: what can be read in a checkpoint, and where.
#include "gemloupe/report/support.h"

#include "common.h"
#include "gemloupe/store/atomic_file.h"

namespace gemloupe::cli {

void add_support(CLI::App& app, const Globals&) {
  struct Command {
    ModelOptions model;
    bool as_json = false;
    std::string html;
  };
  auto command = std::make_shared<Command>();
  CLI::App* support = app.add_subcommand("support", "Every value by its host, the sizes, the config, what to know");
  command->model.add_to(*support, false);
  support->add_flag("--json", command->as_json, "For machines");
  support->add_option("--html", command->html, "Write a page instead");
  support->footer(
      "For each value its layout, its meaning and where in the forward pass it is read; for a value that this\n"
      "checkpoint lacks, why. Only the config is read, no weights; MODEL may also be the name or hub id of a\n"
      "released checkpoint that is not here.\n\n"
      "Examples:\n"
      "  gemloupe support google/gemma-3-270m | less\n"
      "  gemloupe support gemma.gguf --html gemma.html");
  support->callback([command] {
    Document document = gemloupe::support(command->model.plan());
    if (!command->html.empty()) write_file(command->html, to_html(document));
    if (command->as_json)
      print_json(to_json(document));
    else if (command->html.empty())
      print(to_text(document, screen_width()));
  });
}

}  // namespace gemloupe::cli
