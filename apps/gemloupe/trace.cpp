// gemloupe trace: values of one run, read, changed, saved.
#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "common.h"
#include "edit.h"
#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/report/document.h"
#include "log.h"
#include "save.h"
#include "selection.h"

namespace gemloupe::cli {
namespace {

// A value with its place in the run: edits and reads are done in the order in which a run computes.
struct Access {
  Position position;
  RowId row;
  const Edit* edit;  // null for a read
};

struct TraceCommand {
  ModelOptions model;
  PromptOptions prompt;
  std::vector<std::string> names, edit_texts;
  std::string out;
  bool as_json = false;

  void run(const Globals& globals) const {
    if (names.empty() && out.empty()) throw CLI::RequiredError("NAMES");
    if (!out.empty()) check_target(out);
    Model loaded = model.load(globals);
    const Plan& plan = loaded.plan();
    std::vector<Edit> edits;
    for (const std::string& text : edit_texts) edits.emplace_back(plan, text);
    std::vector<Access> accesses = ordered(plan, edits);
    Prompt ids = prompt.prompt(loaded);
    std::vector<Saved> saved = read(loaded, ids, accesses, globals);
    json origin = to_json(provenance(loaded, "gemloupe.trace/1", ids));
    if (!edit_texts.empty()) origin["edits"] = edit_texts;
    if (!out.empty()) save(out, saved, origin);
    if (as_json)
      print_json(summary_json(saved, origin));
    else if (out.empty())
      print(to_text(summary(saved), 1000));
  }

  std::vector<Access> ordered(const Plan& plan, const std::vector<Edit>& edits) const {
    std::vector<Access> accesses;
    for (const Edit& edit : edits)
      for (RowId row : edit.rows()) accesses.push_back({plan.row(row).position, row, &edit});
    std::vector<RowId> rows;
    for (const std::string& name : names)
      for (RowId row : rows_of(plan, name))
        if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
    for (RowId row : rows) accesses.push_back({plan.row(row).position, row, nullptr});
    // Edits stand before reads: what is read is what the model goes on with.
    std::stable_sort(accesses.begin(), accesses.end(),
                     [](const Access& a, const Access& b) { return a.position < b.position; });
    return accesses;
  }

  std::vector<Saved> read(const Model& loaded, const Prompt& ids, const std::vector<Access>& accesses,
                          const Globals& globals) const {
    Timed timed("the run");
    Progress progress("step", static_cast<int64_t>(loaded.plan().steps.size()), globals.quiet);
    std::vector<Saved> saved;
    Trace trace = loaded.trace(ids);
    for (const Access& access : accesses) {
      progress.at(access.position);
      if (access.edit) {
        trace.write(access.row, access.edit->changed(loaded.plan().row(access.row), trace.read(access.row)));
        continue;
      }
      at::Tensor value = trace.read(access.row);
      const std::string& name = loaded.plan().row(access.row).name;
      if (value.defined())
        saved.push_back({name, trace.snapshot(value)});
      else
        log(Level::Warning, name + " is not made in this run and is left out; with --attn eager it is");
    }
    trace.finish();
    return saved;
  }
};

}  // namespace

void add_trace(CLI::App& app, const Globals& globals) {
  auto command = std::make_shared<TraceCommand>();
  CLI::App* trace = app.add_subcommand("trace", "Read, change and save values of one run");
  command->model.add_to(*trace, true);
  command->prompt.add_to(*trace);
  trace->add_option("NAMES", command->names, "Values to read: names, or globs in quotes")->required();
  trace->add_option("--edit", command->edit_texts, "Change a value: 'NAME OP OPERAND'; may be given again and again")
      ->allow_extra_args(false);
  trace->add_option("--out", command->out, "Save: x.safetensors, x.npz, or dir/ for one .npy a value")
      ->check([](const std::string& target) { return target.empty() ? std::string("names no file") : std::string(); });
  trace->add_flag("--json", command->as_json, "For machines: shapes and statistics of what was read");
  trace->footer(
      "Names are those that `gemloupe show MODEL` prints: layers.5.mlp.mlp_output, layers.0.self_attn.q_proj.input.\n"
      "In a glob * is any characters but a dot, ** any at all. Their order does not matter: edits and reads are done\n"
      "in the order of the forward pass, and a run ends at the last of them.\n"
      "An edit is NAME=2, NAME*=0.5, NAME+=1, NAME-=1, NAME/=3, of a part NAME[:, -1, 0:4]=0, and with a tensor\n"
      "from a file NAME+=@steer.safetensors:direction. Without --out a table of what was read is printed.\n\n"
      "Examples:\n"
      "  gemloupe trace gemma.gguf \"Hello\" logits\n"
      "  gemloupe trace gemma.gguf \"Hello\" 'layers.*.layer_output' --out hello.safetensors\n"
      "  gemloupe trace gemma.gguf \"Hello\" next_token_probs --edit 'layers.5.mlp.mlp_output *= 0.5'\n"
      "  gemloupe trace gemma.gguf \"Hello\" logits --edit 'layers.*.self_attn.attention_output[:, -1] = 0'");
  trace->callback([command, &globals] { command->run(globals); });
}

}  // namespace gemloupe::cli
