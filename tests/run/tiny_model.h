// A Gemma 3 of a few thousand random weights, written as a checkpoint and loaded from it.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <map>

#include "gemloupe/family/family.h"
#include "gemloupe/run/prompt.h"
#include "gemloupe/run/trace.h"
#include "gemloupe/run/weights.h"
#include "gemloupe/store/safetensors.h"
#include "store/files.h"

namespace run_tests {

using namespace gemloupe;
using store_tests::TempFolder;

// Tiny tensors gain nothing from a second thread, and wait for it on a busy machine.
inline const bool kOneThread = (at::set_num_threads(1), true);

/// Three blocks, the second of them full; every size another, so that no axis can stand in for a second one.
inline json tiny_config(const json& changes = json::object()) {
  json config{{"model_type", "gemma3_text"}, {"vocab_size", 61},
              {"hidden_size", 32},           {"intermediate_size", 40},
              {"num_hidden_layers", 3},      {"num_attention_heads", 4},
              {"num_key_value_heads", 2},    {"head_dim", 6},
              {"query_pre_attn_scalar", 6},  {"sliding_window", 4},
              {"sliding_window_pattern", 2}, {"final_logit_softcapping", 30.0}};
  config.update(changes);
  return config;
}

/// The same of every text family: Gemma 3, Gemma 2 with its capped scores, Gemma 1 without a window, Gemma 4 with
/// per-layer embeddings and borrowed keys, and with experts.
inline std::vector<json> tiny_families() {
  json gemma2 = tiny_config({{"model_type", "gemma2"}, {"attn_logit_softcapping", 2.0}});
  gemma2.erase("sliding_window_pattern");
  json gemma = tiny_config({{"model_type", "gemma"}});
  for (const char* key :
       {"sliding_window_pattern", "sliding_window", "query_pre_attn_scalar", "final_logit_softcapping"})
    gemma.erase(key);
  // Blocks 1 and 2 borrow what block 0 keeps, or, full ones, what they make of their own keys.
  const json gemma4{{"model_type", "gemma4_text"},
                    {"vocab_size", 61},
                    {"hidden_size", 32},
                    {"intermediate_size", 20},
                    {"num_hidden_layers", 4},
                    {"num_attention_heads", 4},
                    {"num_key_value_heads", 2},
                    {"head_dim", 6},
                    {"global_head_dim", 8},
                    {"sliding_window", 4},
                    {"layer_types", {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}}};
  json borrowing = gemma4, experts = gemma4;
  borrowing.update({{"num_kv_shared_layers", 2},
                    {"hidden_size_per_layer_input", 5},
                    {"vocab_size_per_layer_input", 61},
                    {"use_double_wide_mlp", true},
                    {"final_logit_softcapping", 30.0}});
  experts.update({{"hidden_size_per_layer_input", 0},
                  {"attention_k_eq_v", true},
                  {"num_global_key_value_heads", 1},
                  {"enable_moe_block", true},
                  {"num_experts", 5},
                  {"top_k_experts", 2},
                  {"moe_intermediate_size", 7}});
  return {tiny_config(), gemma2, gemma, borrowing, experts};
}

inline std::shared_ptr<const Plan> tiny_plan(const json& config = tiny_config()) {
  const Family& family = find_family(config["model_type"].get<std::string>(), "config.json");
  return std::make_shared<const Plan>(family.recipe(family.read_config(config, "config.json", {}), {}));
}

using Tensors = std::map<std::string, at::Tensor>;

/// Every weight by its name on disk.
inline Tensors random_weights(const Plan& plan, at::ScalarType dtype = at::kFloat, uint64_t seed = 1) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  Tensors tensors;
  for (const WeightSlot& weight : plan.weights) {
    if (weight.tied_to) continue;
    const double scale = weight.shape.size() == 1 ? 0.2 : weight.name.find("embed") != std::string::npos ? 0.5 : 0.3;
    tensors[weight.name] = (at::randn(weight.shape, generator, at::kFloat) * scale).to(dtype);
  }
  return tensors;
}

inline DType dtype_of(const at::Tensor& tensor) {
  return *dtype_from_name(dtype_name(tensor.scalar_type()));
}

inline void write_tensors(const std::filesystem::path& file, const Tensors& tensors) {
  std::vector<ArrayToWrite> arrays;
  for (const auto& [name, tensor] : tensors)
    arrays.push_back({name, dtype_of(tensor), tensor.sizes().vec(), static_cast<const std::byte*>(tensor.data_ptr())});
  write_safetensors(file, arrays);
}

inline void write_checkpoint(const TempFolder& folder, const json& config, const Tensors& tensors) {
  folder.add("config.json", config.dump());
  write_tensors(folder.path() / "model.safetensors", tensors);
}

/// Cheap to copy.
struct TinyModel {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const Weights> weights;

  PassInputs inputs(const Prompt& prompt) const { return check_prompt(prompt, plan->sizes.vocab_size, at::kCPU); }
  Trace trace(const Prompt& prompt, bool eager = false) const { return Trace(plan, weights, inputs(prompt), eager); }
  at::Tensor logits(const Prompt& prompt, bool eager = false) const { return trace(prompt, eager).read("logits"); }
};

inline Prompt prompt(const std::vector<std::vector<int64_t>>& rows) {
  return prompt_of(rows, 0);
}

/// Ids that differ from one place to the next.
inline std::vector<int64_t> some_ids(int64_t count, int64_t seed = 7) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back((seed * (i + 3) * (i + 11)) % 59 + 1);
  return ids;
}

inline TinyModel tiny_model(const json& config = tiny_config(), at::ScalarType dtype = at::kFloat, uint64_t seed = 1) {
  const TempFolder folder;  // gone at the end; what is mapped stays
  TinyModel model{tiny_plan(config), nullptr};
  write_checkpoint(folder, config, random_weights(*model.plan, dtype, seed));
  model.weights = std::make_shared<const Weights>(
      Weights::bind(*model.plan, Checkpoint::open(folder.path().string()), dtype, at::kCPU));
  return model;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && at::equal(a, b);
}

/// The largest difference; NaN counts as one.
inline double distance(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  const double worst = (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
  return std::isnan(worst) ? std::numeric_limits<double>::infinity() : worst;
}

inline Slot slot_of(const Plan& plan, const std::string& name) {
  return plan.row(plan.find_row(name)).value.slot;
}
inline Position position_of(const Plan& plan, const std::string& name) {
  return plan.row(plan.find_row(name)).position;
}

/// The rows in the order in which a run reaches them.
inline std::vector<RowId> rows_in_order(const Plan& plan) {
  std::vector<RowId> rows(plan.rows.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<RowId>(i);
  std::stable_sort(rows.begin(), rows.end(),
                   [&](RowId a, RowId b) { return plan.row(a).position < plan.row(b).position; });
  return rows;
}

}  // namespace run_tests
