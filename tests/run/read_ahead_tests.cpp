#include <cstdlib>

#include "gemloupe/base/errors.h"
#include "gemloupe/run/read_ahead.h"
#include "run/tiny_model.h"

using namespace run_tests;

namespace {

/// As if every weight lay in a file, one byte an element: the addresses are never read.
std::vector<ReadAhead::Range> ranges_of(const Plan& plan) {
  std::vector<ReadAhead::Range> ranges;
  size_t at = 1 << 20;
  for (const WeightSlot& weight : plan.weights) {
    size_t size = 1;
    for (int64_t n : weight.shape) size *= static_cast<size_t>(n);
    ranges.push_back(weight.tied_to ? ranges[static_cast<size_t>(*weight.tied_to)]
                                    : ReadAhead::Range{reinterpret_cast<std::byte*>(at), size});
    at += size;
  }
  return ranges;
}

int64_t total(const std::vector<ReadAhead::Range>& ranges) {
  size_t size = 0;
  for (const auto& range : ranges) size += range.size;
  return static_cast<int64_t>(size);
}

class Told {
 public:
  explicit Told(const char* memory) { setenv("GEMLOUPE_MEMORY", memory, 1); }
  ~Told() { unsetenv("GEMLOUPE_MEMORY"); }
};

}  // namespace

TEST_CASE("read ahead: none where the weights fit, stages where they do not") {
  auto plan = tiny_plan();
  const auto ranges = ranges_of(*plan);
  CHECK(ReadAhead::make(*plan, ranges, 2 * total(ranges)) == nullptr);
  auto some = ReadAhead::make(*plan, ranges, total(ranges) / 2);
  REQUIRE(some != nullptr);
  CHECK(some->stages() == 5);  // before the blocks, three of them, behind
  CHECK(some->kept() < some->stages());
  auto none = ReadAhead::make(*plan, ranges, 1);
  CHECK(none->kept() == 0);
  CHECK(ReadAhead::make(*plan, std::vector<ReadAhead::Range>(plan->weights.size()), 1) == nullptr);
}

TEST_CASE("read ahead: a run that does not fit has the same bits, and keeps what was written into its weights") {
  for (const json& config : tiny_families()) {
    const TinyModel plain = tiny_model(config);
    const Prompt some = prompt({some_ids(9), some_ids(9, 5)});
    const at::Tensor expected = plain.logits(some);
    const Told told("1K");
    const TinyModel streamed = tiny_model(config);
    REQUIRE(streamed.weights->read_ahead() != nullptr);
    for (int i = 0; i < 3; ++i) CHECK(at::equal(streamed.logits(some), expected));
    const WeightId norm = plain.plan->steps[static_cast<size_t>(plain.plan->head) - 1].weights.at(0);
    streamed.weights->at(norm).mul_(2);
    plain.weights->at(norm).mul_(2);
    const at::Tensor edited = plain.logits(some);
    for (int i = 0; i < 3; ++i) CHECK(at::equal(streamed.logits(some), edited));
  }
}

TEST_CASE("read ahead: a size that is none is refused") {
  for (const char* text : {"", "many", "12X", "-3G", "0", "1GB", "1e99G", "nan"}) {
    const Told told(text);
    CHECK_THROWS_AS(memory_to_fill(), BadOption);
  }
  const Told told("1.5K");
  CHECK(memory_to_fill() == 1536);
}
