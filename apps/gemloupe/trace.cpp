#include "common.h"
namespace gemloupe::cli {
void add_trace(CLI::App&, const Globals&) {}
}  // namespace gemloupe::cli
