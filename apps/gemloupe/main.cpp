// gemloupe: load a Gemma checkpoint, look at every value of its forward pass, change it, and see what follows.
#include <ATen/Version.h>
#include <c10/util/Exception.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "commands.h"
#include "common.h"
#include "gemloupe/base/errors.h"
#include "gemloupe/base/interrupt.h"
#include "gemloupe/base/text.h"
#include "gemloupe/report/provenance.h"
#include "gemloupe/store/atomic_file.h"
#include "gemloupe/version.h"
#include "log.h"

namespace gemloupe::cli {
namespace {

constexpr int kError = 1, kUsage = 2;

volatile sig_atomic_t ended_by = 0;

// The first Ctrl-C ends the work at its next step, which also removes what was being written; a second one at once.
extern "C" void on_signal(int number) {
  if (ended_by) {
    remove_unfinished_files();
    ::_exit(128 + number);
  }
  ended_by = number;
  request_interrupt();
}

extern "C" void on_closed_pipe(int number) {
  remove_unfinished_files();
  ::_exit(128 + number);
}

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU}) ::sigaction(number, &action, nullptr);
  action.sa_handler = on_closed_pipe;
  ::sigaction(SIGPIPE, &action, nullptr);
  action.sa_handler = SIG_IGN;  // past a limit for files, writing fails with an error
  ::sigaction(SIGXFSZ, &action, nullptr);
}

int refuse(std::string message, std::string_view slug, int code) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::fprintf(stderr, "gemloupe: %s\n", message.c_str());
  if (!slug.empty()) std::fprintf(stderr, "  see docs/errors/%.*s.md\n", static_cast<int>(slug.size()), slug.data());
  return code;
}

int refuse_usage(const CLI::App& app, const CLI::Error& error, const std::string& first) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  bool unknown =
      !first.empty() && first[0] != '-' && std::find(commands.begin(), commands.end(), first) == commands.end();
  std::string message = error.what();
  if (unknown) {
    auto near = nearest(first, commands);
    message = "there is no command '" + first + "'" + (near.empty() ? "" : ": did you mean " + quoted_list(near) + "?");
  }
  auto used = app.get_subcommands();
  std::string help = used.empty() ? "gemloupe --help" : "gemloupe " + used[0]->get_name() + " --help";
  std::fprintf(stderr, "gemloupe: %s\n  see %s\n", message.c_str(), help.c_str());
  return kUsage;
}

std::string version_text() {
  return std::string("gemloupe ") + kVersion + "\ntorch " + torch_version() + "\nCPU capability " +
         at::get_cpu_capability();
}

void check_torch() {
  std::string found = torch_version();
  if (!found.starts_with(kTorchVersion))
    throw BadOption("this gemloupe was built for torch " + std::string(kTorchVersion) + ", but torch " + found +
                    " was loaded. Install torch==" + kTorchVersion + ", or build gemloupe again.");
}

int run(int argc, char** argv) {
  CLI::App app(
      "A jeweller's loupe for Gemma: load a checkpoint, read and change every value of its forward pass.\n"
      "Everything is printed on standard output, and nothing else is: it can be piped.",
      "gemloupe");
  app.footer(
      "Start here:\n"
      "  gemloupe lens MODEL \"The Eiffel Tower is in the city of\"\n"
      "  gemloupe show MODEL                      # the names of all values\n"
      "  gemloupe trace MODEL \"Hello\" 'layers.*.layer_output' --out hello.safetensors\n\n"
      "MODEL is a folder with config.json and weights, a .gguf file, or a hub id in the local cache.\n"
      "Exit codes: 0 done, 1 an error, 2 wrong usage, 130 Ctrl-C. GEMLOUPE_LOG=debug shows where time goes.");
  Globals globals;
  app.add_option("--threads", globals.threads, "How many CPU threads compute; left out: libtorch's choice")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--quiet", globals.quiet, "No warnings and no progress on standard error");
  app.set_version_flag("--version", version_text, "gemloupe's and torch's versions, and the CPU path in use");
  app.require_subcommand(1);
  app.fallthrough();
  app.parse_complete_callback([&globals] {
    read_log_level(globals.quiet);
    check_torch();
  });
  for (auto add : {add_lens, add_trace, add_show, add_support, add_tokenize, add_generate, add_quantize})
    add(app, globals);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version print and end here
    return refuse_usage(app, error, argc > 1 ? argv[1] : "");
  }
  throw_if_interrupted();
  return 0;
}

int guarded(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Interrupted&) {
    return refuse("interrupted.", "", 128 + ended_by);
  } catch (const BadOption& error) {
    return refuse(error.what(), error.slug(), kUsage);
  } catch (const Error& error) {
    return refuse(error.what(), error.slug(), kError);
  } catch (const std::bad_alloc&) {
    return refuse("there is not enough memory for this.", "", kError);
  } catch (const c10::Error& error) {
    return refuse(error.what_without_backtrace(), InternalError("").slug(), kError);
  } catch (const std::exception& error) {
    return refuse(error.what(), InternalError("").slug(), kError);
  }
}

}  // namespace
}  // namespace gemloupe::cli

int main(int argc, char** argv) {
  gemloupe::cli::handle_signals();
  // Without destructors of statics: libtorch's take a while and there is nothing left to do.
  std::fflush(nullptr);
  int code = gemloupe::cli::guarded(argc, argv);
  std::fflush(nullptr);
  ::_exit(code);
}
