#include "gemloupe/interventions.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "gemloupe/base/errors.h"
#include "gemloupe/run/tokens_at.h"

namespace gemloupe {
inline namespace v0 {
namespace interventions {
namespace {

using Edit = std::function<void(const at::Tensor&)>;

std::vector<int64_t> numbers(const std::vector<int64_t>& wanted, int64_t count, const std::string& what) {
  std::vector<int64_t> found = wanted;
  if (wanted.empty()) {
    found.resize(static_cast<size_t>(count));
    std::iota(found.begin(), found.end(), 0);
  }
  for (int64_t& number : found) {
    if (number < -count || number >= count)
      throw BadOption("there is no " + what + " " + std::to_string(number) + ": they are 0 to " +
                      std::to_string(count - 1) + ".");
    if (number < 0) number += count;
  }
  return found;
}

std::string in_block(int64_t layer, const std::string& value) {
  return "layers." + std::to_string(layer) + "." + value;
}

at::Tensor mask_of(const Prompt& prompt) {
  return prompt.attention_mask && prompt.attention_mask->defined() ? *prompt.attention_mask : at::ones_like(prompt.ids);
}

Prompt rows_of(const Prompt& prompt) {
  Prompt rows = prompt;
  if (rows.ids.dim() == 1) rows.ids = rows.ids.unsqueeze(0);
  return rows;
}

/// [rows, vocab_size], float32, at each row's last token.
at::Tensor last_logits(Trace& trace, const at::Tensor& mask) {
  if (mask.select(1, -1).all().item<bool>()) return trace.last_logits().to(at::kFloat);
  return at_token(trace.read("logits"), token_columns(mask, -1)).to(at::kFloat);
}

at::Tensor number(const Metric& metric, const at::Tensor& logits) {
  at::Tensor found = metric(logits);
  if (!found.defined() || found.numel() != 1) throw BadValue("a metric must give a tensor of one element.");
  return found.reshape({});
}

/// The metric without an edit, and of each value's name with each of its edits. One run goes along; at each value its
/// edits branch off as rows of batches, so that what lies before is computed once for all of them.
std::pair<double, std::map<std::string, std::vector<double>>> branch_off(
    const Model& model, const Prompt& prompt, const Metric& metric,
    const std::map<std::string, std::vector<Edit>>& edits, int64_t batch_size) {
  if (batch_size < 1) throw BadOption("batch_size=" + std::to_string(batch_size) + " is below 1.");
  const int64_t rows = prompt.ids.size(0), copies = std::max<int64_t>(batch_size / rows, 1);
  const at::Tensor mask = mask_of(prompt);
  std::vector<std::string> names;
  for (const auto& [name, list] : edits) names.push_back(name);
  const Plan& plan = model.plan();
  auto place = [&](const std::string& name) { return plan.row(plan.find_row(name)).position; };
  std::sort(names.begin(), names.end(), [&](auto& a, auto& b) { return place(a) < place(b); });

  std::map<std::string, std::vector<double>> found;
  Trace base = model.trace(prompt);
  for (const std::string& name : names) {
    const RowId row = plan.find_row(name);
    const auto point = base.point(row);
    const std::vector<Edit>& list = edits.at(name);
    for (size_t first = 0; first < list.size(); first += static_cast<size_t>(copies)) {
      const int64_t count = std::min<int64_t>(copies, static_cast<int64_t>(list.size() - first));
      Trace branches = model.trace(*point->repeated(count));
      const at::Tensor value = branches.read(row);
      for (int64_t i = 0; i < count; ++i) list[first + static_cast<size_t>(i)](value.narrow(0, i * rows, rows));
      const at::Tensor logits = last_logits(branches, mask.repeat({count, 1}));
      for (const at::Tensor& part : logits.split(rows)) found[name].push_back(number(metric, part).item<double>());
    }
  }
  return {number(metric, last_logits(base, mask)).item<double>(), std::move(found)};
}

/// [layers, positions] of the edits' metrics.
at::Tensor grid(const std::map<std::string, std::vector<double>>& found, const std::vector<std::string>& names) {
  std::vector<at::Tensor> rows;
  for (const std::string& name : names) rows.push_back(at::tensor(found.at(name), at::kDouble));
  return at::stack(rows);
}

int64_t seq_axis(const Row& row) {
  const std::vector<Axis> axes = row.spec ? row.spec->axes : std::vector<Axis>{};
  auto seq = std::find(axes.begin(), axes.end(), Axis::seq);
  if (seq == axes.end()) throw BadOption("'" + row.name + "' has no seq axis, so there are no positions to patch.");
  return seq - axes.begin();
}

void check_alike(const Prompt& clean, const Prompt& corrupted) {
  if (clean.ids.sizes() != corrupted.ids.sizes() || !at::equal(mask_of(clean), mask_of(corrupted)))
    throw BadPrompt(
        "the clean and the corrupted prompt must have as many tokens each: positions are patched one to one.");
}

/// The nodes and weights of Gauss and Legendre's rule on [0, 1], by Golub and Welsch.
std::pair<at::Tensor, at::Tensor> gauss_legendre(int64_t count) {
  const at::Tensor i = at::arange(1, count, at::kDouble);
  const at::Tensor beside = i / (4 * i * i - 1).sqrt();
  auto [nodes, vectors] = at::linalg_eigh(at::diag_embed(beside, 1) + at::diag_embed(beside, -1));
  return {(nodes + 1) / 2, vectors.select(0, 0).square()};
}

}  // namespace

at::Tensor token_activations(const Model& model, const Prompt& given, const std::vector<int64_t>& layers,
                             int64_t index) {
  const Prompt prompt = rows_of(given);
  const std::vector<int64_t> wanted = numbers(layers, model.plan().num_layers(), "block");
  const at::Tensor columns = token_columns(mask_of(prompt), index);
  std::map<int64_t, at::Tensor> found;
  for (int64_t layer : wanted) found[layer];
  Trace trace = model.trace(prompt);
  for (auto& [layer, stream] : found) stream = at_token(trace.read(in_block(layer, "layer_output")), columns);
  std::vector<at::Tensor> streams;
  for (int64_t layer : wanted) streams.push_back(found[layer]);
  return at::stack(streams).to(at::kCPU);
}

at::Tensor logit_lens(const Model& model, const Prompt& prompt) {
  std::vector<at::Tensor> said;
  for (const at::Tensor& stream : token_activations(model, prompt).unbind(0))
    said.push_back(at::softmax(model.project_on_vocab(stream).to(at::kFloat), -1).to(at::kCPU));
  return at::stack(said, 1);
}

at::Tensor patchscope_lens(const Model& model, const Prompt& source, const Prompt& given, int64_t index,
                           const std::vector<int64_t>& layers) {
  const Prompt target = rows_of(given);
  const std::vector<int64_t> wanted = numbers(layers, model.plan().num_layers(), "block");
  const at::Tensor latents = token_activations(model, source, wanted);
  if (latents.size(1) != target.ids.size(0))
    throw BadOption("there are " + std::to_string(target.ids.size(0)) + " targets for " +
                    std::to_string(latents.size(1)) + " sources: give one for each.");
  const at::Tensor columns = token_columns(mask_of(target), index), rows = at::arange(columns.size(0));
  std::vector<at::Tensor> said;
  for (size_t i = 0; i < wanted.size(); ++i) {
    Trace trace = model.trace(target);
    at::Tensor stream = trace.read(in_block(wanted[i], "layer_output"));
    stream.index_put_({rows, columns}, latents[static_cast<int64_t>(i)].to(stream.device()));
    said.push_back(at::softmax(last_logits(trace, mask_of(target)), -1).to(at::kCPU));
  }
  return at::stack(said, 1);
}

void steer(Trace& trace, int64_t layer, const at::Tensor& vector, double factor, std::optional<int64_t> position) {
  const int64_t wanted = numbers({layer}, trace.plan().num_layers(), "block")[0];
  at::Tensor stream = trace.read(in_block(wanted, "layer_output"));
  if (!vector.defined() || vector.dim() == 0 || vector.size(-1) != stream.size(-1))
    throw BadValue("a steering vector's last axis must be hidden_size, " + std::to_string(stream.size(-1)) + ".");
  (position ? stream.select(1, *position) : stream).add_(vector.to(stream.device()), factor);
}

at::Tensor HeadAblation::effect() const {
  return ablated - clean;
}

HeadAblation head_ablation(const Model& model, const Prompt& given, const Metric& metric, const Sweep& sweep) {
  const Prompt prompt = rows_of(given);
  const std::vector<int64_t> layers = numbers(sweep.layers, model.plan().num_layers(), "block");
  std::map<std::string, std::vector<Edit>> edits;
  int64_t most = 0;
  for (const Sizes& sizes : model.plan().layer_sizes) most = std::max(most, sizes.num_heads);
  for (int64_t layer : layers)
    for (int64_t head = 0; head < model.plan().layer_sizes[static_cast<size_t>(layer)].num_heads; ++head)
      edits[in_block(layer, "self_attn.attention_premix")].push_back(
          [head](const at::Tensor& premix) { premix.select(2, head).zero_(); });
  auto [clean, found] = branch_off(model, prompt, metric, edits, sweep.batch_size);
  at::Tensor ablated =
      at::full({model.plan().num_layers(), most}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  for (int64_t layer : layers) {
    const auto& heads = found.at(in_block(layer, "self_attn.attention_premix"));
    ablated[layer].narrow(0, 0, static_cast<int64_t>(heads.size())).copy_(at::tensor(heads, at::kDouble));
  }
  return {clean, ablated};
}

at::Tensor Patching::recovered() const {
  return (patched - corrupted) / (clean - corrupted);
}

Patching activation_patching(const Model& model, const Prompt& clean_prompt, const Prompt& corrupted_prompt,
                             const Metric& metric, const std::string& value, const Sweep& sweep) {
  const Prompt clean = rows_of(clean_prompt), corrupted = rows_of(corrupted_prompt);
  check_alike(clean, corrupted);
  const Plan& plan = model.plan();
  const std::vector<int64_t> layers = numbers(sweep.layers, plan.num_layers(), "block");
  const std::vector<int64_t> columns = numbers(sweep.positions, clean.ids.size(1), "position");
  std::map<std::string, std::vector<Edit>> edits;
  std::vector<std::string> names;
  for (int64_t layer : layers) names.push_back(in_block(layer, value));
  std::vector<std::string> in_order = names;
  std::sort(in_order.begin(), in_order.end(), [&](auto& a, auto& b) {
    return plan.row(plan.find_row(a)).position < plan.row(plan.find_row(b)).position;
  });
  Trace trace = model.trace(clean);
  for (const std::string& name : in_order) {
    if (edits.contains(name)) continue;
    const int64_t axis = seq_axis(plan.row(plan.find_row(name)));
    const at::Tensor source = trace.snapshot(trace.read(name));
    for (int64_t column : columns)
      edits[name].push_back([source, axis, column](const at::Tensor& live) {
        live.select(axis, column).copy_(source.select(axis, column));
      });
  }
  const double of_clean = number(metric, last_logits(trace, mask_of(clean))).item<double>();
  trace.finish();
  auto [of_corrupted, found] = branch_off(model, corrupted, metric, edits, sweep.batch_size);
  return {of_clean, of_corrupted, grid(found, names)};
}

Patching attribution_patching(const Model& model, const Prompt& clean_prompt, const Prompt& corrupted_prompt,
                              const Metric& metric, const std::string& value, const Sweep& sweep) {
  const Prompt clean = rows_of(clean_prompt), corrupted = rows_of(corrupted_prompt);
  check_alike(clean, corrupted);
  const Plan& plan = model.plan();
  const std::vector<int64_t> layers = numbers(sweep.layers, plan.num_layers(), "block");
  const std::vector<int64_t> columns = numbers(sweep.positions, clean.ids.size(1), "position");
  std::map<int64_t, at::Tensor> sources, targets;
  for (int64_t layer : layers) sources[layer];
  // Both runs record: one that does not takes other kernels in bfloat16, whose rounding would look like a difference.
  auto read = [&](Trace& trace, std::map<int64_t, at::Tensor>& into) {
    trace.record_gradients();
    for (const auto& [layer, unused] : sources) into[layer] = trace.read(in_block(layer, value));
  };
  Trace one = model.trace(clean), other = model.trace(corrupted);
  read(one, sources);
  const double of_clean = number(metric, last_logits(one, mask_of(clean))).item<double>();
  one.finish();
  read(other, targets);
  const at::Tensor of_corrupted = number(metric, last_logits(other, mask_of(corrupted)));
  of_corrupted.backward();
  std::vector<at::Tensor> effects;
  for (int64_t layer : layers) {
    const at::Tensor& target = targets[layer];
    const int64_t axis = seq_axis(plan.row(plan.find_row(in_block(layer, value))));
    at::Tensor effect = (sources[layer].detach() - target.detach()).to(at::kDouble) * target.grad().to(at::kDouble);
    effect = effect.movedim(axis, 0).flatten(1).sum(1).to(at::kCPU);
    effects.push_back(effect.index_select(0, at::tensor(columns, at::kLong)));
  }
  const double metric_there = of_corrupted.item<double>();
  return {of_clean, metric_there, metric_there + at::stack(effects)};
}

at::Tensor integrated_gradients(const Model& model, const Prompt& given, const Metric& metric,
                                const at::Tensor& baseline, int64_t steps) {
  if (steps < 1) throw BadOption("steps=" + std::to_string(steps) + " is below 1.");
  const Prompt prompt = rows_of(given);
  Trace first = model.trace(prompt);
  const at::Tensor own = first.read("token_embeddings").clone();
  first.finish();
  const at::Tensor from = baseline.to(own.device(), own.scalar_type()).expand_as(own);
  auto [nodes, weights] = gauss_legendre(steps);
  at::Tensor gradient = at::zeros(own.sizes(), own.options().dtype(at::kDouble));
  for (int64_t i = 0; i < steps; ++i) {
    const at::Tensor there = at::lerp(from, own, nodes[i].item<double>()).requires_grad_(true);
    Trace trace = model.trace(prompt);
    trace.write("token_embeddings", there);
    number(metric, last_logits(trace, mask_of(prompt))).backward();
    gradient += there.grad().to(at::kDouble) * weights[i];
  }
  return ((own - from).to(at::kDouble) * gradient).to(at::kCPU);
}

}  // namespace interventions
}  // namespace v0
}  // namespace gemloupe
