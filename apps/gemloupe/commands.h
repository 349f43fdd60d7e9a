// The subcommands: each adds itself to the app, with its options, its help and what it does.
#pragma once

#include <CLI/CLI.hpp>

namespace gemloupe::cli {

/// Options of the whole program.
struct Globals {
  int threads = 0;  ///< 0 leaves libtorch's own choice
  bool quiet = false;
};

void add_lens(CLI::App& app, const Globals& globals);
void add_trace(CLI::App& app, const Globals& globals);
void add_show(CLI::App& app, const Globals& globals);
void add_support(CLI::App& app, const Globals& globals);
void add_tokenize(CLI::App& app, const Globals& globals);
void add_generate(CLI::App& app, const Globals& globals);
void add_quantize(CLI::App& app, const Globals& globals);

}  // namespace gemloupe::cli
