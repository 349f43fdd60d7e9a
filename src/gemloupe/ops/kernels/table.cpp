#include "gemloupe/ops/kernels/table.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "gemloupe/base/errors.h"
#include "gemloupe/ops/kernels/isa/isa.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

const Table& chosen() {
  const char* forced = std::getenv("GEMLOUPE_ISA");
  for (const Table* table : tables())
    if (!forced || !*forced || std::string(forced) == table->name) return *table;
  std::string names;
  for (const Table* table : tables()) names += (names.empty() ? "" : ", ") + std::string(table->name);
  throw BadOption("GEMLOUPE_ISA is '" + std::string(forced) + "', but this machine runs: " + names + ".");
}

std::atomic<const Table*>& current() {
  static std::atomic<const Table*> current{&chosen()};
  return current;
}

}  // namespace

std::vector<const Table*> tables() {
  std::vector<const Table*> here;
  for (const Table* table : {&kAvx512Bf16, &kAvx512, &kAvx2, &kPortable})
    if (table->runs_here()) here.push_back(table);
  return here;
}

const Table& table() {
  return *current();
}

void use(const Table& table) {
  current() = &table;
}

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
