#include "gemloupe/model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <malloc.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "gemloupe/base/errors.h"
#include "gemloupe/family/family.h"
#include "gemloupe/family/released.h"
#include "gemloupe/run/call.h"

namespace gemloupe {
inline namespace v0 {

struct Model::Lazy {
  std::once_flag once;
  std::optional<Tokenizer> tokenizer;
};

namespace {

/// More than any machine's cores; so many that the system refuses to start them end the process inside OpenMP.
constexpr int kMostThreads = 1024;

RecipeOptions recipe_options(const LoadOptions& options) {
  RecipeOptions recipe;
  recipe.attn_implementation = options.attn_implementation;
  if (recipe.attn_implementation != "" && recipe.attn_implementation != "eager" && recipe.attn_implementation != "sdpa")
    throw BadOption("attn_implementation '" + options.attn_implementation +
                    "' is none of 'eager' (the reference's operations, bit for bit) and 'sdpa' (the fast default, but "
                    "for Gemma 2's softcap).");
  const std::string& cap = options.final_logit_softcapping;
  recipe.softcap_choice = cap;
  if (cap == "default" || cap == "config" || cap == "none") return recipe;
  auto [end, error] = std::from_chars(cap.data(), cap.data() + cap.size(), recipe.final_logit_softcap);
  if (error != std::errc() || end != cap.data() + cap.size() || !(recipe.final_logit_softcap > 0) ||
      std::isinf(recipe.final_logit_softcap))
    throw BadOption("final_logit_softcapping '" + cap + "' is none of 'default', 'config', None and a number above 0.");
  recipe.softcap_choice = "number";
  return recipe;
}

const std::string& model_type_of(const json& config, const std::string& where) {
  if (!config.is_object() || !config.contains("model_type") || !config["model_type"].is_string())
    throw BadConfig(where + ": it has no 'model_type', so its family is not known.");
  return config["model_type"].get_ref<const std::string&>();
}

Plan plan_of_checkpoint(const Checkpoint& checkpoint, const LoadOptions& options) {
  if (!checkpoint.is_gguf()) {
    const std::string where = (checkpoint.path() / "config.json").string();
    if (checkpoint.config().is_null())
      throw NotFound(where + ": no such file. A checkpoint folder holds config.json beside its weights.");
    return plan_of(checkpoint.config(), where, options);
  }
  const std::string where = checkpoint.path().string();
  const json architecture = checkpoint.gguf_metadata().value("general.architecture", json());
  const Family& family =
      find_gguf_family(architecture.is_string() ? architecture.get<std::string>() : architecture.dump(), where);
  return plan_of(family.config_from_gguf(checkpoint), where, options);
}

/// What the config says, as the reference has it; else what the weights have.
at::ScalarType standard_dtype(const Checkpoint& checkpoint, const Plan& plan) {
  const json& configured = plan.config.attributes()["dtype"];
  if (!configured.is_string()) return own_dtype(checkpoint);
  try {
    return parse_dtype(configured.get<std::string>());
  } catch (const BadOption& error) {
    throw BadConfig((checkpoint.path() / "config.json").string() + ": " + error.what());
  }
}

/// A pass makes and drops temporaries of megabytes. At first glibc maps each one anew, and the kernel clears its pages:
/// 8 % of a prefill of 512 tokens, and as much again where every attention pattern is saved. So blocks of up to 32 MB,
/// the most that glibc allows, come of memory that it keeps, up to 256 MB. Where the user has set these limits nothing
/// changes.
void keep_freed_memory() {
#ifdef __GLIBC__
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") || std::getenv("MALLOC_TRIM_THRESHOLD_") || std::getenv("GLIBC_TUNABLES"))
    return;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

/// The dtype that a model is loaded in is all of its configs'.
void set_dtype(Plan& plan, at::ScalarType dtype) {
  const std::string name = dtype_name(dtype);
  json& config = plan.config.attributes();
  config["dtype"] = plan.text_config.attributes()["dtype"] = name;
  for (auto& [key, value] : config.items())
    if (key.ends_with("_config") && value.is_object() && value.contains("dtype")) value["dtype"] = name;
}

/// A setting of generation: a multimodal config leaves it to its text model's.
json setting(const Plan& plan, const char* key) {
  const json own = plan.config.attributes().value(key, json());
  return own.is_null() ? plan.text_config.attributes().value(key, json()) : own;
}

bool is_there(const std::string& path_or_id) {
  std::error_code ignored;
  return std::filesystem::exists(path_or_id, ignored);
}

at::Device parse_device(const std::string& name) {
  std::optional<at::Device> device;
  try {
    device.emplace(name);
  } catch (const std::exception&) {
  }
  if (!device || !(device->is_cpu() || device->is_cuda()))
    throw BadOption("device '" + name + "' is none of 'cpu', 'cuda' and 'cuda:N'.");
  const int devices = device->is_cpu() ? 1 : at::detail::getCUDAHooks().deviceCount();
  if (devices <= std::max<int>(device->index(), 0))
    throw BadOption("device '" + name + "' is not there: libtorch finds " + std::to_string(devices) + " of its kind.");
  return *device;
}

}  // namespace

Plan plan_of(const json& config, const std::string& where, const LoadOptions& options) {
  const Family& family = find_family(model_type_of(config, where), where);
  return family.recipe(family.read_config(config, where, options.ignore_config_keys), recipe_options(options));
}

Plan plan_of(const Checkpoint& checkpoint, const LoadOptions& options) {
  Plan plan = plan_of_checkpoint(checkpoint, options);
  set_dtype(plan, options.dtype ? parse_dtype(*options.dtype) : standard_dtype(checkpoint, plan));
  return plan;
}

Plan plan_of(const std::string& path_or_name, const LoadOptions& options) {
  return Model::without_weights(path_or_name, options).plan();
}

Model Model::without_weights(const json& config, const std::string& where, const LoadOptions& options) {
  Plan plan = plan_of(config, where, options);
  if (options.dtype) set_dtype(plan, parse_dtype(*options.dtype));
  Model model;
  model.path_ = where;
  model.attn_implementation_ = options.attn_implementation.empty() ? "sdpa" : options.attn_implementation;
  model.lazy_ = std::make_shared<Lazy>();
  model.plan_ = std::make_shared<const Plan>(std::move(plan));
  return model;
}

Model Model::without_weights(const std::string& path_or_name, const LoadOptions& options) {
  recipe_options(options);
  const Released* released = is_there(path_or_name) ? nullptr : find_released(path_or_name);
  std::shared_ptr<Checkpoint> checkpoint;
  try {
    checkpoint =
        std::make_shared<Checkpoint>(Checkpoint::open(path_or_name, options.revision, Checkpoint::Weights::Optional));
  } catch (const NotFound& error) {
    if (released) return without_weights(released->config, released->name, options);
    const std::string near = near_released(path_or_name);
    throw NotFound(error.what() + (near.empty() ? near : " Of the released checkpoints, did you mean " + near + "?"));
  }
  Model model;
  model.path_ = path_or_name;
  model.attn_implementation_ = options.attn_implementation.empty() ? "sdpa" : options.attn_implementation;
  model.lazy_ = std::make_shared<Lazy>();
  model.plan_ = std::make_shared<const Plan>(plan_of(*checkpoint, options));
  model.checkpoint_ = std::move(checkpoint);
  return model;
}

Model Model::load(const std::string& path_or_id, const LoadOptions& options) {
  recipe_options(options);  // a bad option is refused before anything is read
  std::optional<at::ScalarType> dtype;
  if (options.dtype) dtype = parse_dtype(*options.dtype);
  at::Device device = parse_device(options.device);
  if (options.threads) {
    if (*options.threads < 1 || *options.threads > kMostThreads)
      throw BadOption("threads must be from 1 to " + std::to_string(kMostThreads) + ", but it is " +
                      std::to_string(*options.threads) + ".");
    at::set_num_threads(*options.threads);
  }
  keep_freed_memory();
  Model model;
  model.path_ = path_or_id;
  model.attn_implementation_ = options.attn_implementation.empty() ? "sdpa" : options.attn_implementation;
  model.lazy_ = std::make_shared<Lazy>();
  model.checkpoint_ = std::make_shared<Checkpoint>(Checkpoint::open(path_or_id, options.revision));
  Plan plan = plan_of_checkpoint(*model.checkpoint_, options);
  at::ScalarType chosen = dtype ? *dtype : standard_dtype(*model.checkpoint_, plan);
  set_dtype(plan, chosen);
  if (chosen == at::kHalf)
    plan.warnings.push_back(
        "float16 ends at 65504, and the residual streams of Gemma models grow beyond it: infinities and NaN may "
        "follow. bfloat16 has the range of float32.");
  model.plan_ = std::make_shared<const Plan>(std::move(plan));
  model.weights_ = std::make_shared<const Weights>(
      Weights::bind(*model.plan_, *model.checkpoint_, chosen, device,
                    model.eager() || options.dequantize ? Storage::OfRun : Storage::AsStored));
  return model;
}

const std::shared_ptr<const Weights>& Model::shared_weights() const {
  if (!weights_)
    throw NotFound(
        "'" + path_ +
        "' has no weights here: it was made of a config alone (from_config, dispatch=False), which gives names, "
        "shapes and sizes. Load a checkpoint to run it.");
  return weights_;
}

at::Tensor Model::weight(WeightId id) const {
  if (weights_) return weights_->at(id);
  const WeightSlot& slot = plan_->weights.at(static_cast<size_t>(id));
  return at::empty(slot.shape, at::TensorOptions().device(device()).dtype(dtype()));
}

at::Tensor Model::weight_rows(WeightId id, const at::Tensor& ids) const {
  return shared_weights()->stored(id).rows_as(ids.to(device()), dtype());
}

at::ScalarType Model::dtype() const {
  if (weights_) return weights_->dtype();
  const json& dtype = plan_->config.attributes()["dtype"];
  return dtype.is_string() ? parse_dtype(dtype.get<std::string>()) : at::kFloat;
}

at::Device Model::device() const {
  return weights_ ? weights_->device() : at::Device(at::kMeta);
}

const Checkpoint& Model::checkpoint() const {
  if (!checkpoint_)
    throw NotFound("'" + path_ + "' is a config alone: it has no tokenizer and no files. Load a checkpoint.");
  return *checkpoint_;
}

const TokenizerFiles& Model::tokenizer_files() const {
  return checkpoint().tokenizer_files();
}
const json& Model::generation_config() const {
  static const json none;
  return checkpoint_ ? checkpoint_->generation_config() : none;
}

const Tokenizer& Model::tokenizer() const {
  std::call_once(lazy_->once, [&] { lazy_->tokenizer = Tokenizer::load(tokenizer_files()); });
  return *lazy_->tokenizer;
}

Prompt Model::prompt(const std::string& text) const {
  Encoding encoding = tokenizer().encode(text);
  if (encoding.ids.empty()) throw BadPrompt("the prompt is empty: a run needs at least one token.");
  return {at::tensor(encoding.ids, at::kLong).unsqueeze(0), std::nullopt, std::nullopt};
}

Trace Model::trace(const Prompt& prompt) const {
  const auto& weights = shared_weights();
  Trace trace(plan_, weights, check_prompt(prompt, plan_->sizes.vocab_size, weights->device(), plan_->first_position),
              eager());
  trace.stand(edits_);
  return trace;
}

Trace Model::trace(const TracePoint& point) const {
  shared_weights();
  if (point.plan != plan_)
    throw BadOption("this point is of another model's run: a run goes on from a point of the same model.");
  if (point.cursor->weights().device() != weights_->device())
    throw BadOption("this point is of a scan, which has no numbers to go on with: take it in a trace.");
  if (point.standing != edits_)
    throw BadOption(
        "this point is of a run with other standing edits: take it in a run of the model that goes on from it.");
  return Trace(point);
}

Trace Model::scan(const Prompt& prompt) const {
  const json& dtype = plan_->config.attributes()["dtype"];
  const at::ScalarType chosen = dtype.is_string() ? parse_dtype(dtype.get<std::string>()) : at::kFloat;
  auto shapes = std::make_shared<const Weights>(Weights::shapes(*plan_, chosen));
  return Trace(plan_, std::move(shapes), check_prompt(prompt, plan_->sizes.vocab_size, at::kCPU, plan_->first_position),
               eager());
}

Model Model::with_edits(std::vector<StandingEdit> edits) const {
  Model edited = *this;
  edited.edits_ = std::make_shared<const std::vector<StandingEdit>>(std::move(edits));
  return edited;
}

at::Tensor Model::project_on_vocab(const at::Tensor& hidden) const {
  if (!hidden.defined() || hidden.dim() < 1 || hidden.size(-1) != plan_->sizes.hidden_size)
    throw BadValue("project_on_vocab takes hidden states [..., " + std::to_string(plan_->sizes.hidden_size) + "].");
  const auto& weights = shared_weights();
  // The final norm is the step before the head.
  Position norm = plan_->head - 1;
  Slot from = plan_->steps[static_cast<size_t>(norm)].inputs[0].slot;
  PassInputs none{at::zeros({1, 1}, at::kLong), at::ones({1, 1}, at::kLong), at::zeros({1, 1}, at::kLong)};
  Cursor cursor(plan_, weights, none, eager());
  return cursor.apply(norm, plan_->row(plan_->logits).position, from, hidden.to(weights->device(), weights->dtype()));
}

std::vector<int64_t> end_tokens_of(const Plan& plan, const json& generation_config) {
  const bool says = generation_config.is_object() && generation_config.contains("eos_token_id");
  const json from = says ? generation_config["eos_token_id"] : setting(plan, "eos_token_id");
  std::vector<int64_t> ends;
  if (from.is_number_integer()) ends.push_back(from.get<int64_t>());
  if (from.is_array())
    for (const json& id : from)
      if (id.is_number_integer()) ends.push_back(id.get<int64_t>());
  return ends;
}

std::vector<int64_t> Model::end_tokens() const {
  return end_tokens_of(*plan_, generation_config());
}

GenerateOptions Model::generate_defaults() const {
  GenerateOptions options;
  const json& configured = generation_config();
  if (!configured.is_object()) return options;
  auto number = [&](const char* key, auto& to) {
    if (const json& found = configured.value(key, json()); found.is_number())
      to = found.get<std::remove_reference_t<decltype(to)>>();
  };
  number("max_new_tokens", options.max_new_tokens);
  number("repetition_penalty", options.sampling.repetition_penalty);
  options.do_sample = configured.value("do_sample", json(false)) == true;
  number("temperature", options.sampling.temperature);
  number("top_k", options.sampling.top_k);
  number("top_p", options.sampling.top_p);
  number("min_p", options.sampling.min_p);
  return options;
}

int64_t Model::pad_token() const {
  const json& configured = generation_config();
  const json own = configured.is_object() ? configured.value("pad_token_id", json()) : json();
  const json pad = own.is_number_integer() ? own : setting(*plan_, "pad_token_id");
  return pad.is_number_integer() && pad.get<int64_t>() >= 0 ? pad.get<int64_t>() : 0;
}

Generation Model::generation(const Prompt& prompt, GenerateOptions options) const {
  if (!options.end_tokens) {
    const std::vector<int64_t> ends = end_tokens();
    options.end_tokens.emplace(ends.begin(), ends.end());
  }
  options.pad = pad_token();
  const auto& weights = shared_weights();
  return Generation(plan_, weights,
                    check_prompt(prompt, plan_->sizes.vocab_size, weights->device(), plan_->first_position), eager(),
                    std::move(options), edits_);
}

at::Tensor Model::generate(const Prompt& prompt, GenerateOptions options) const {
  Generation generation = this->generation(prompt, std::move(options));
  while (!generation.finished()) {
    Trace trace = generation.pass();
    generation.finish(trace);
  }
  return generation.ids();
}

std::vector<at::Tensor> Model::call(ModuleId module, const at::Tensor& input,
                                    const std::optional<at::Tensor>& positions) const {
  return call_module(*plan_, *shared_weights(), module, input, positions, eager());
}

}  // namespace v0
}  // namespace gemloupe
