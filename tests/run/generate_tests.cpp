#include "gemloupe/base/errors.h"
#include "gemloupe/base/interrupt.h"
#include "gemloupe/run/generate.h"
#include "run/tiny_model.h"

using namespace run_tests;

namespace {

at::Tensor generated(const TinyModel& model, const Prompt& prompt, GenerateOptions options, bool eager = false) {
  return generate(model.plan, model.weights, model.inputs(prompt), eager, options);
}

GenerateOptions tokens(int64_t count) {
  GenerateOptions options;
  options.max_new_tokens = count;
  return options;
}

/// The likeliest token after the whole text, again and again, without a cache.
std::vector<int64_t> by_full_runs(const TinyModel& model, std::vector<int64_t> ids, int64_t count, bool eager) {
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(model.logits(prompt({ids}), eager).select(1, -1).argmax(-1).item<int64_t>());
  return ids;
}

std::vector<int64_t> row(const at::Tensor& ids, int64_t index) {
  const at::Tensor one = ids[index].contiguous();
  return {one.const_data_ptr<int64_t>(), one.const_data_ptr<int64_t>() + one.numel()};
}

std::vector<int64_t> last(const std::vector<int64_t>& ids, size_t count) {
  return {ids.end() - static_cast<long>(count), ids.end()};
}

}  // namespace

TEST_CASE("generate: what full runs without a cache say, for prompts within the window and beyond it") {
  for (const json& config : tiny_families()) {
    const TinyModel model = tiny_model(config, at::kFloat, 2);
    CAPTURE(model.plan->family);
    for (int64_t length : {1, 3, 4, 11})
      for (bool eager : {false, true}) {
        CAPTURE(length);
        const std::vector<int64_t> expected = by_full_runs(model, some_ids(length), 12, eager);
        const at::Tensor found = generated(model, prompt({some_ids(length)}), tokens(12), eager);
        CHECK(found.sizes() == at::IntArrayRef({1, length + 12}));
        CHECK(row(found, 0) == expected);
      }
  }
}

TEST_CASE("generate: a model without a window, one with nothing but windows") {
  for (const json& changes :
       {json{{"sliding_window", nullptr}}, json{{"sliding_window", 1}, {"sliding_window_pattern", 9}}}) {
    const TinyModel model = tiny_model(tiny_config(changes));
    CHECK(row(generated(model, prompt({some_ids(6)}), tokens(8)), 0) == by_full_runs(model, some_ids(6), 8, false));
  }
}

TEST_CASE("generate: a row of a padded batch is what it is alone") {
  for (const json& config : tiny_families()) {
    const TinyModel model = tiny_model(config);
    CAPTURE(model.plan->family);
    const std::vector<std::vector<int64_t>> rows{some_ids(9), some_ids(2), some_ids(5, 3)};
    for (bool eager : {false, true}) {
      const at::Tensor found = generated(model, prompt(rows), tokens(10), eager);
      for (size_t i = 0; i < rows.size(); ++i) {
        const at::Tensor alone = generated(model, prompt({rows[i]}), tokens(10), eager);
        CHECK(last(row(found, static_cast<int64_t>(i)), 10) == last(row(alone, 0), 10));
      }
    }
  }
}

TEST_CASE("generate: a row ends with an end token, the others go on, pads fill up") {
  const TinyModel model = tiny_model();
  const std::vector<int64_t> one = last(row(generated(model, prompt({some_ids(5)}), tokens(8)), 0), 8);
  const std::vector<int64_t> two = last(row(generated(model, prompt({some_ids(5, 3)}), tokens(8)), 0), 8);
  // A token that the first row makes, and the second does not.
  size_t place = 0;
  while (place < 8 && std::find(two.begin(), two.end(), one[place]) != two.end()) ++place;
  REQUIRE(place < 7);
  const auto first = static_cast<size_t>(std::find(one.begin(), one.end(), one[place]) - one.begin());
  GenerateOptions options = tokens(8);
  options.end_tokens = {one[place], 60};
  options.pad = 60;
  if (std::find(two.begin(), two.end(), 60) != two.end()) options.end_tokens = {one[place]};
  const at::Tensor both = generated(model, prompt({some_ids(5), some_ids(5, 3)}), options);
  REQUIRE(both.size(1) == 5 + 8);
  std::vector<int64_t> expected(one.begin(), one.begin() + static_cast<long>(first) + 1);
  expected.resize(8, 60);
  CHECK(last(row(both, 0), 8) == expected);
  CHECK(last(row(both, 1), 8) == two);
  // Alone it ends at once.
  const at::Tensor alone = generated(model, prompt({some_ids(5)}), options);
  CHECK(alone.size(1) == 5 + static_cast<int64_t>(first) + 1);
}

TEST_CASE("generate: each step is handed over as it is made, and can be the last") {
  const TinyModel model = tiny_model();
  std::vector<std::vector<int64_t>> steps;
  GenerateOptions options = tokens(6);
  options.on_step = [&](const std::vector<int64_t>& step) {
    steps.push_back(step);
    return steps.size() < 4;
  };
  const at::Tensor found = generated(model, prompt({some_ids(5), some_ids(3)}), options);
  REQUIRE(steps.size() == 4);
  CHECK(found.size(1) == 5 + 4);
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t r : {0, 1})
      CHECK(steps[static_cast<size_t>(i)][static_cast<size_t>(r)] == found[r][5 + i].item<int64_t>());
  // What it throws comes through.
  options.on_step = [](const std::vector<int64_t>&) -> bool { throw std::domain_error("closed"); };
  CHECK_THROWS_AS(generated(model, prompt({some_ids(5)}), options), std::domain_error);
}

TEST_CASE("generate: Ctrl-C ends it, and the next one is not disturbed") {
  const TinyModel model = tiny_model();
  GenerateOptions options = tokens(1000);
  int made = 0;
  options.on_step = [&](const std::vector<int64_t>&) {
    if (++made == 3) request_interrupt();
    return true;
  };
  CHECK_THROWS_AS(generated(model, prompt({some_ids(5)}), options), Interrupted);
  CHECK(made == 3);
  CHECK_NOTHROW(generated(model, prompt({some_ids(5)}), tokens(2)));
}

TEST_CASE("generate: no tokens, and fewer than none") {
  const TinyModel model = tiny_model();
  const Prompt given = prompt({some_ids(5)});
  CHECK(same_bits(generated(model, given, tokens(0)), given.ids));
  CHECK_REFUSED(BadOption, generated(model, given, tokens(-1)), "max_new_tokens", "-1");
  const at::Tensor before = given.ids.clone();
  generated(model, given, tokens(3));
  CHECK(same_bits(given.ids, before));
}

TEST_CASE("generate: positions that the caller gives go on from there") {
  const TinyModel model = tiny_model();
  const Prompt shifted{prompt({some_ids(5)}).ids, std::nullopt, at::arange(3, 8)};
  std::vector<int64_t> ids = some_ids(5);
  for (int64_t i = 0; i < 6; ++i) {
    const auto length = static_cast<int64_t>(ids.size());
    const Prompt whole{prompt({ids}).ids, std::nullopt, at::arange(3, 3 + length)};
    ids.push_back(model.logits(whole).select(1, -1).argmax(-1).item<int64_t>());
  }
  CHECK(row(generated(model, shifted, tokens(6)), 0) == ids);
}
