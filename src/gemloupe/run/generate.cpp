#include "gemloupe/run/generate.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <limits>

#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

void check_options(const GenerateOptions& o) {
  auto refuse = [](const std::string& name, const std::string& wanted, double found) {
    std::string number = std::to_string(found);
    throw BadOption(name + " must be " + wanted + ", but it is " + number + ".");
  };
  if (o.max_new_tokens < 0)
    throw BadOption("max_new_tokens must be 0 or more, but it is " + std::to_string(o.max_new_tokens) + ".");
  const Sampling& s = o.sampling;
  if (!(s.repetition_penalty > 0) || std::isinf(s.repetition_penalty))
    refuse("repetition_penalty", "above 0", s.repetition_penalty);
  if (!o.do_sample) return;
  if (!(s.temperature >= 1e-30) || std::isinf(s.temperature)) refuse("temperature", "above 0", s.temperature);
  if (s.top_k < 0) refuse("top_k", "0 (for all) or more", static_cast<double>(s.top_k));
  if (!(s.top_p > 0 && s.top_p <= 1)) refuse("top_p", "above 0 and at most 1", s.top_p);
  if (!(s.min_p >= 0 && s.min_p <= 1)) refuse("min_p", "from 0 to 1", s.min_p);
}

at::Tensor penalised(const at::Tensor& logits, const at::Tensor& ids, double penalty) {
  at::Tensor seen = logits.gather(1, ids);
  seen = at::where(seen < 0, seen * penalty, seen / penalty);
  return logits.scatter(1, ids, seen);
}

/// The smallest set of tokens whose probability reaches top_p, the last one included; at least one.
at::Tensor nucleus(const at::Tensor& logits, double top_p) {
  auto [sorted, order] = logits.sort(/*dim=*/-1, /*descending=*/false);
  at::Tensor remove = sorted.softmax(-1).cumsum(-1) <= 1 - top_p;
  remove.select(1, -1).fill_(false);
  return logits.masked_fill(at::zeros_like(remove).scatter(1, order, remove), kLowest);
}

at::Tensor warped(at::Tensor logits, const Sampling& s) {
  if (s.temperature != 1) logits = logits / s.temperature;
  if (s.top_k > 0 && s.top_k < logits.size(-1)) {
    at::Tensor least = std::get<0>(logits.topk(s.top_k, -1)).select(1, -1).unsqueeze(1);
    logits = logits.masked_fill(logits < least, kLowest);
  }
  if (s.top_p < 1) logits = nucleus(logits, s.top_p);
  if (s.min_p > 0) {
    at::Tensor probabilities = logits.softmax(-1);
    logits = logits.masked_fill(probabilities < probabilities.amax(-1, true) * s.min_p, kLowest);
  }
  return logits;
}

}  // namespace

Generation::Generation(std::shared_ptr<const Plan> plan, std::shared_ptr<const Weights> weights,
                       const PassInputs& prompt, bool eager, GenerateOptions options, StandingEdits edits)
    : plan_(std::move(plan)),
      weights_(std::move(weights)),
      pass_(prompt),
      eager_(eager),
      options_(std::move(options)),
      edits_(std::move(edits)),
      cache_(std::make_shared<KvCache>(plan_->caches)),
      ids_(prompt.ids),
      done_(static_cast<size_t>(prompt.ids.size(0)), false) {
  check_options(options_);
  const at::Tensor ends = prompt.mask.select(1, -1).to(at::kCPU) == 0;
  if (ends.any().item<bool>())
    throw BadPrompt(
        "row " + std::to_string(ends.nonzero()[0].item<int64_t>()) +
        " of the prompt ends with padding, but a generation goes on behind the last column. Pad on the left, as "
        "a list of texts or of ids is padded.");
  position_ = prompt.positions.select(1, -1).unsqueeze(1);
  if (options_.do_sample) {
    generator_ = std::make_shared<at::Generator>(at::detail::createCPUGenerator());
    options_.seed ? generator_->set_current_seed(*options_.seed) : static_cast<void>(generator_->seed());
  }
  finished_ = options_.max_new_tokens == 0;
}

Trace Generation::pass() {
  // Copies: what a body writes into a pass's ids or mask is that pass's alone.
  const PassInputs own{pass_.ids.clone(), pass_.mask.clone(), pass_.positions.clone()};
  Trace trace(plan_, weights_, own, eager_, cache_.get());
  trace.stand(edits_);
  if (finished_) trace.finish();
  return trace;
}

std::vector<int64_t> Generation::draw(const at::Tensor& given) {
  // Widening loses nothing, and bfloat16's own argmax takes three times as long.
  at::Tensor logits = given.to(at::kFloat);
  const Sampling& s = options_.sampling;
  if (s.repetition_penalty != 1) logits = penalised(logits, ids_, s.repetition_penalty);
  if (options_.do_sample && !at::isfinite(logits).any(-1).all().item<bool>())
    throw BadValue("a row's logits hold no finite number, so no token can be drawn.");
  at::Tensor next = options_.do_sample
                        ? at::multinomial(warped(logits, s).softmax(-1).to(at::kCPU), 1, false, *generator_).squeeze(1)
                        : logits.argmax(-1);
  next = next.to(at::kCPU, at::kLong).contiguous();
  return {next.const_data_ptr<int64_t>(), next.const_data_ptr<int64_t>() + next.numel()};
}

/// Rows that are done go on with padding; true when all are.
bool Generation::mark_done(std::vector<int64_t>& tokens) {
  bool all = true;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (done_[i]) tokens[i] = options_.pad;
    if (options_.end_tokens && options_.end_tokens->contains(tokens[i])) done_[i] = true;
    all = all && done_[i];
  }
  return all;
}

void Generation::finish(Trace& trace) {
  at::Tensor logits = trace.last_logits().detach();
  trace.run_actions();
  trace.finish();
  std::vector<int64_t> tokens = draw(logits);
  finished_ = mark_done(tokens);
  pass_.ids = at::tensor(tokens, at::kLong).unsqueeze(1).to(ids_.device());
  ids_ = at::cat({ids_, pass_.ids}, 1);
  if (++made_ == options_.max_new_tokens) finished_ = true;
  if (options_.on_step && !options_.on_step(tokens)) finished_ = true;
  position_ = position_ + 1;
  pass_.positions = position_;
  pass_.mask = at::cat({pass_.mask, at::ones_like(pass_.ids)}, 1);
}

at::Tensor generate(const std::shared_ptr<const Plan>& plan, const std::shared_ptr<const Weights>& weights,
                    const PassInputs& prompt, bool eager, const GenerateOptions& options) {
  Generation generation(plan, weights, prompt, eager, options);
  while (!generation.finished()) {
    Trace trace = generation.pass();
    generation.finish(trace);
  }
  return generation.ids();
}

}  // namespace v0
}  // namespace gemloupe
