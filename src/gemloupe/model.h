// The façade: a checkpoint that is loaded, and what can be done with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gemloupe/plan/plan.h"
#include "gemloupe/run/generate.h"
#include "gemloupe/run/prompt.h"
#include "gemloupe/run/trace.h"
#include "gemloupe/run/weights.h"
#include "gemloupe/text/tokenizer.h"

namespace gemloupe {
inline namespace v0 {

struct LoadOptions {
  std::optional<std::string>
      dtype;  ///< none: what config.json says, else the file's own; float32 where it is quantised
  std::string device = "cpu";
  std::string attn_implementation;                  ///< "" is the fast default, "eager" the reference bit for bit
  std::optional<std::string> revision;              ///< of a hub id
  std::string final_logit_softcapping = "default";  ///< "default", "config", "none" or a number
  /// Every weight as numbers of the dtype from the start: eager has it so always.
  bool dequantize = false;
  std::optional<int> threads;
  std::vector<std::string> ignore_config_keys;
};

class Model {
 public:
  /// A folder, a .gguf file or a hub id in the local cache. Errors: NotFound, BadCheckpoint, BadConfig, BadOption.
  static Model load(const std::string& path_or_id, const LoadOptions& options = {});

  /// Names, shapes, sizes and config alone: nothing is read but config.json, and nothing runs. A checkpoint as `load`
  /// takes it, or the name of a released one. Errors: as `load`.
  static Model without_weights(const std::string& path_or_name, const LoadOptions& options = {});
  static Model without_weights(const json& config, const std::string& where, const LoadOptions& options = {});

  const Plan& plan() const { return *plan_; }
  /// Errors: NotFound where there are none.
  const Weights& weights() const { return *shared_weights(); }
  bool has_weights() const { return weights_ != nullptr; }
  /// One weight; of a model without weights a tensor that has a shape and a dtype only.
  at::Tensor weight(WeightId id) const;
  /// Some rows of a matrix [..., width], `ids` [...], which is all that is made numbers of it. Errors: NotFound.
  at::Tensor weight_rows(WeightId id, const at::Tensor& ids) const;
  /// What runs compute in, and where; of a model without weights what its config says, on libtorch's meta device.
  at::ScalarType dtype() const;
  at::Device device() const;
  const std::string& path() const { return path_; }
  const std::string& attn_implementation() const { return attn_implementation_; }
  bool eager() const { return attn_implementation_ == "eager"; }

  /// Loaded at its first use. Errors: NotFound where the checkpoint has none, BadTokenizer.
  const Tokenizer& tokenizer() const;
  const TokenizerFiles& tokenizer_files() const;
  const json& generation_config() const;
  /// Errors: NotFound where the model was made of a config.
  const Checkpoint& checkpoint() const;

  /// A run that the caller pulls. Errors: BadPrompt.
  Trace trace(const std::string& text) const { return trace(prompt(text)); }
  Trace trace(const Prompt& prompt) const;
  /// Goes on from a point of a run of this model, or of one that has its plan: `with_edits`. Errors: BadOption.
  Trace trace(const TracePoint& point) const;
  /// A run that makes shapes and dtypes alone: no weight is read, nothing is computed, no standing edit is made. Values
  /// are on libtorch's meta device. A model without weights has it, too. Errors: BadPrompt.
  Trace scan(const Prompt& prompt) const;
  /// The same model, every run of which makes these edits and no others. Weights are shared.
  Model with_edits(std::vector<StandingEdit> edits) const;
  const std::vector<StandingEdit>& edits() const { return *edits_; }
  /// The prompt's ids, with <bos> once.
  Prompt prompt(const std::string& text) const;

  /// The final norm, lm_head and the model's own cap applied to any hidden state [..., hidden_size].
  at::Tensor project_on_vocab(const at::Tensor& hidden) const;

  /// What the module of that path returns for `input`, beside any run: see run/call.h.
  std::vector<at::Tensor> call(ModuleId module, const at::Tensor& input,
                               const std::optional<at::Tensor>& positions = std::nullopt) const;

  /// What generation_config.json says: sampling and how, how many tokens, which one pads.
  GenerateOptions generate_defaults() const;
  /// Ends at the checkpoint's end-of-sequence tokens if `options` names none.
  at::Tensor generate(const Prompt& prompt, GenerateOptions options) const;
  /// The same pass by pass, each a trace that can be read and edited.
  Generation generation(const Prompt& prompt, GenerateOptions options) const;
  std::vector<int64_t> end_tokens() const;
  int64_t pad_token() const;

 private:
  struct Lazy;
  const std::shared_ptr<const Weights>& shared_weights() const;
  std::string path_, attn_implementation_;
  std::shared_ptr<Checkpoint> checkpoint_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const Weights> weights_;
  std::shared_ptr<Lazy> lazy_;
  StandingEdits edits_ = std::make_shared<const std::vector<StandingEdit>>();
};

/// The tokens that end a text, by generation_config.json (null where absent), else by the config.
std::vector<int64_t> end_tokens_of(const Plan& plan, const json& generation_config);

/// The plan of a config without weights: `where` names it in messages. Errors: BadConfig.
Plan plan_of(const json& config, const std::string& where, const LoadOptions& options = {});
/// The plan that Model::load would run, without reading a weight. Errors: BadConfig, NotFound.
Plan plan_of(const Checkpoint& checkpoint, const LoadOptions& options = {});
/// Of a checkpoint as Model::load takes it, else of the released one with this name or hub id.
Plan plan_of(const std::string& path_or_name, const LoadOptions& options = {});

}  // namespace v0
}  // namespace gemloupe
