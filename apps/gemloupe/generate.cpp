#include "common.h"
namespace gemloupe::cli {
void add_generate(CLI::App&, const Globals&) {}
}  // namespace gemloupe::cli
