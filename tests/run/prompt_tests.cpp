#include "gemloupe/base/errors.h"
#include "gemloupe/run/prompt.h"
#include "run/tiny_model.h"

using namespace run_tests;

namespace {

constexpr int64_t kVocabulary = 61;

PassInputs checked(const Prompt& prompt) {
  return check_prompt(prompt, kVocabulary, at::kCPU);
}

at::Tensor ids(const std::vector<int64_t>& numbers) {
  return at::tensor(numbers, at::kLong);
}

at::Tensor floats(const std::vector<double>& numbers) {
  return at::tensor(numbers, at::kFloat);
}

std::string text(const at::Tensor& tensor) {
  std::string out;
  const at::Tensor flat = tensor.flatten().to(at::kLong).contiguous();
  for (int64_t i = 0; i < flat.numel(); ++i) out += (i ? " " : "") + std::to_string(flat[i].item<int64_t>());
  return out;
}

}  // namespace

TEST_CASE("prompt: ids are enough") {
  for (const at::Tensor& given : {ids({5, 0, 60}), ids({5, 0, 60}).unsqueeze(0), ids({5, 0, 60}).to(at::kInt),
                                  ids({5, 0, 60}).to(at::kByte), ids({5, 9, 0, 9, 60, 9}).view({3, 2}).select(1, 0)}) {
    const PassInputs inputs = checked({given, std::nullopt, std::nullopt});
    CHECK((inputs.ids.scalar_type() == at::kLong));
    CHECK(inputs.ids.sizes() == at::IntArrayRef({1, 3}));
    CHECK(text(inputs.ids) == "5 0 60");
    CHECK(text(inputs.mask) == "1 1 1");
    CHECK(text(inputs.positions) == "0 1 2");
  }
}

TEST_CASE("prompt: the run has copies") {
  const Prompt given{ids({1, 2}).unsqueeze(0), ids({1, 1}).unsqueeze(0), ids({0, 1}).unsqueeze(0)};
  const PassInputs inputs = checked(given);
  inputs.ids.fill_(3);
  inputs.mask.fill_(0);
  inputs.positions.fill_(9);
  CHECK(text(given.ids) == "1 2");
  CHECK(text(*given.attention_mask) == "1 1");
  CHECK(text(*given.position_ids) == "0 1");
}

TEST_CASE("prompt: several rows are padded on the left, and positions count from the first token") {
  const Prompt given = prompt_of({{4, 5, 6}, {7}, {8, 9}}, 3);
  CHECK(text(given.ids) == "4 5 6 3 3 7 3 8 9");
  CHECK(text(*given.attention_mask) == "1 1 1 0 0 1 0 1 1");
  CHECK(text(checked(given).positions) == "0 1 2 0 0 0 0 0 1");
  CHECK_REFUSED(BadPrompt, prompt_of({}, 0), "empty");
  CHECK_REFUSED(BadPrompt, prompt_of({{1}, {}}, 0), "empty");
}

TEST_CASE("prompt: masks of any type that hold zeros and ones") {
  for (at::ScalarType dtype : {at::kLong, at::kBool, at::kFloat, at::kByte}) {
    const PassInputs inputs = checked({ids({1, 2, 3}), ids({0, 1, 1}).to(dtype), std::nullopt});
    CHECK((inputs.mask.scalar_type() == at::kLong));
    CHECK(text(inputs.mask) == "0 1 1");
    CHECK(text(inputs.positions) == "0 0 1");
  }
  // A hole, and padding on the right.
  CHECK(text(checked({ids({1, 2, 3, 4}), ids({1, 0, 1, 0}), std::nullopt}).positions) == "0 0 1 1");
}

TEST_CASE("prompt: positions that the caller gives") {
  CHECK(text(checked({ids({1, 2, 3}), std::nullopt, ids({7, 7, 900})}).positions) == "7 7 900");
  CHECK(text(checked({ids({1, 2, 3}), std::nullopt, floats({0, 2, 4})}).positions) == "0 2 4");
  const Prompt batch = prompt_of({{1, 2}, {3, 4}}, 0);
  CHECK(checked({batch.ids, std::nullopt, ids({4, 5}).unsqueeze(0)}).positions.size(0) == 1);
  CHECK(text(checked({batch.ids, std::nullopt, ids({4, 5, 6, 7}).view({2, 2})}).positions) == "4 5 6 7");
}

TEST_CASE("prompt: an undefined mask or position is none") {
  const PassInputs inputs = checked({ids({1, 2}), at::Tensor(), at::Tensor()});
  CHECK(text(inputs.mask) == "1 1");
  CHECK(text(inputs.positions) == "0 1");
}

TEST_CASE("prompt: each bad one with its message") {
  auto refused = [](const Prompt& prompt, std::initializer_list<std::string_view> parts) {
    store_tests::check_message(store_tests::message_of<BadPrompt>([&] { checked(prompt); }), parts);
  };
  const at::Tensor good = ids({1, 2, 3});
  SUBCASE("ids") {
    refused({at::Tensor(), {}, {}}, {"empty"});
    refused({at::empty({0}, at::kLong), {}, {}}, {"empty"});
    refused({at::empty({1, 0}, at::kLong), {}, {}}, {"empty"});
    refused({at::empty({0, 3}, at::kLong), {}, {}}, {"empty"});
    refused({floats({1, 2}), {}, {}}, {"integers", "Float"});
    refused({good.to(at::kBool), {}, {}}, {"integers", "Bool"});
    refused({good.to(at::kComplexFloat), {}, {}}, {"integers", "Complex"});
    refused({at::scalar_tensor(3, at::kLong), {}, {}}, {"[batch, seq] or [seq]", "[]"});
    refused({good.view({1, 1, 3}), {}, {}}, {"[batch, seq] or [seq]", "[1, 1, 3]"});
    refused({ids({1, 61, 2}), {}, {}}, {"input_ids[0, 1] is 61", "0 to 60"});
    refused({ids({1, 2, 3, -1}).view({2, 2}), {}, {}}, {"input_ids[1, 1] is -1", "0 to 60"});
    refused({ids({INT64_MAX}), {}, {}}, {"9223372036854775807"});
  }
  SUBCASE("masks") {
    refused({good, ids({1, 1}), {}}, {"attention_mask", "[1, 3]", "[2]"});
    refused({good, at::ones({2, 3}, at::kLong), {}}, {"attention_mask", "[1, 3]", "[2, 3]"});
    refused({good, at::ones({1, 1, 3}, at::kLong), {}}, {"attention_mask", "[1, 1, 3]"});
    refused({good, at::ones({}, at::kLong), {}}, {"attention_mask", "[]"});
    refused({good, ids({1, 2, 1}), {}}, {"attention_mask", "0 (padding) and 1"});
    refused({good, ids({1, -1, 1}), {}}, {"attention_mask", "0 (padding) and 1"});
    refused({good, floats({1, 0.5, 1}), {}}, {"attention_mask", "0 (padding) and 1"});
    refused({good, floats({1, NAN, 1}), {}}, {"attention_mask", "0 (padding) and 1"});
    refused({good, ids({0, 0, 0}), {}}, {"attention_mask", "without a token"});
    refused({ids({1, 2, 3, 4}).view({2, 2}), ids({1, 1, 0, 0}).view({2, 2}), {}}, {"without a token"});
  }
  SUBCASE("positions") {
    refused({good, {}, ids({0, 1})}, {"position_ids", "[1, 3]", "[2]"});
    refused({good, {}, at::zeros({2, 3}, at::kLong)}, {"position_ids", "[1, 3]", "[2, 3]"});
    refused({good, {}, at::zeros({1, 1, 3}, at::kLong)}, {"position_ids", "[1, 1, 3]"});
    refused({good, {}, ids({0, -1, 2})}, {"position_ids", "below 0"});
    refused({good, {}, floats({0, NAN, 2})}, {"position_ids", "NaN or infinity"});
    refused({good, {}, floats({0, INFINITY, 2})}, {"position_ids", "NaN or infinity"});
    refused({good, {}, floats({0, 1.5, 2})}, {"position_ids", "fractions"});
    refused({good, {}, floats({0, 1e30, 2})}, {"position_ids"});
  }
}
