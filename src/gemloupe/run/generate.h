// Token after token, with a key/value cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "gemloupe/run/trace.h"

namespace at {
struct Generator;
}

namespace gemloupe {
inline namespace v0 {

/// How a token is drawn; as transformers' generate applies them, in this order.
struct Sampling {
  double repetition_penalty = 1;  ///< divides the positive logits of tokens that are there already
  double temperature = 1;
  int64_t top_k = 0;  ///< 0 keeps all
  double top_p = 1;
  double min_p = 0;  ///< of the most probable token's probability
};

struct GenerateOptions {
  int64_t max_new_tokens = 20;
  std::optional<std::set<int64_t>> end_tokens;  ///< a row that has made one of these is done; none: the checkpoint's
  int64_t pad = 0;                              ///< what done rows are filled with
  bool do_sample = false;                       ///< otherwise the most probable token
  Sampling sampling;
  std::optional<uint64_t> seed;  ///< the same seed draws the same tokens
  /// Called with each step's tokens, one a row; false ends the generation.
  std::function<bool(const std::vector<int64_t>&)> on_step;
};

/// A generation that the caller takes pass by pass: `while (!g.finished()) { Trace t = g.pass(); …; g.finish(t); }`.
class Generation {
 public:
  /// Errors: BadOption.
  Generation(std::shared_ptr<const Plan> plan, std::shared_ptr<const Weights> weights, const PassInputs& prompt,
             bool eager, GenerateOptions options, StandingEdits edits = nullptr);

  /// The next pass: the prompt's, then one of each new token. What it is edited to is what the next token is drawn
  /// from. Of a generation that is over: a trace that has ended.
  Trace pass();
  /// Runs what is left of the pass, draws its tokens and puts them behind the ids.
  void finish(Trace& pass);

  bool finished() const { return finished_; }
  int64_t made() const { return made_; }
  /// [batch, prompt + new], as transformers' generate returns them.
  const at::Tensor& ids() const { return ids_; }

 private:
  std::vector<int64_t> draw(const at::Tensor& logits);
  bool mark_done(std::vector<int64_t>& tokens);

  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const Weights> weights_;
  PassInputs pass_;
  bool eager_;
  GenerateOptions options_;
  StandingEdits edits_;
  std::shared_ptr<KvCache> cache_;
  std::shared_ptr<at::Generator> generator_;
  at::Tensor ids_, position_;
  std::vector<char> done_;
  int64_t made_ = 0;
  bool finished_ = false;
};

/// All of it: the ids [batch, prompt + new].
at::Tensor generate(const std::shared_ptr<const Plan>& plan, const std::shared_ptr<const Weights>& weights,
                    const PassInputs& prompt, bool eager, const GenerateOptions& options);

}  // namespace v0
}  // namespace gemloupe
