// Direct logit attribution: a logit as the sum of what each head, MLP and the embedding put into the stream.
#include <ATen/ATen.h>

#include <algorithm>

#include "gemloupe/base/errors.h"
#include "gemloupe/interventions.h"
#include "gemloupe/run/tokens_at.h"

namespace gemloupe {
inline namespace v0 {
namespace interventions {
namespace {

/// A module's weight by its name there; undefined where it has none.
at::Tensor weight_of(const Model& model, const std::string& module, const std::string& name) {
  if (!model.plan().module_index.contains(module)) return {};
  for (const auto& [found, id] : model.plan().module(model.plan().find_module(module)).weights)
    if (found == name) return model.weight(id).to(at::kDouble);
  return {};
}

/// What the step from `before` to `after` multiplied each component by. It is an RMS norm whose gain is 1 + weight or
/// weight, or, of Gemma 1's attention, none at all: that of the three which gives `after`.
at::Tensor frozen_norm(const Model& model, const at::Tensor& before, const at::Tensor& after, const std::string& norm) {
  std::vector<at::Tensor> candidates{at::ones_like(before)};
  if (const at::Tensor gain = weight_of(model, norm, "weight"); gain.defined()) {
    const double eps = model.plan().module(model.plan().find_module(norm)).attributes.at("eps").get<double>();
    const at::Tensor inverse = (before.square().mean(-1, true) + eps).rsqrt();
    candidates.push_back(inverse * (1 + gain));
    candidates.push_back(inverse * gain);
  }
  auto error = [&](const at::Tensor& scale) { return (before * scale - after).abs().max().item<double>(); };
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](const at::Tensor& a, const at::Tensor& b) { return error(a) < error(b); });
}

/// What one run put into the stream at one token, [prompts, …], float64.
struct Run {
  at::Tensor entering, leaving, normed;
  struct Block {
    at::Tensor premix, projected, attention, mlp, per_layer;
  };
  std::vector<Block> blocks;

  Run(const Model& model, const Prompt& prompt, const at::Tensor& columns) {
    Trace trace = model.trace(prompt);
    auto take = [&](const std::string& name) { return at_token(trace.read(name), columns).to(at::kDouble); };
    entering = take("layers.0.layer_input");
    for (int64_t i = 0; i < model.plan().num_layers(); ++i) {
      const std::string block = "layers." + std::to_string(i) + ".";
      Block b;
      b.premix = take(block + "self_attn.attention_premix");
      b.projected = take(block + "self_attn.o_proj.output");
      b.attention = take(block + "self_attn.attention_output");
      b.mlp = take(block + "mlp.mlp_output");
      const bool more = model.plan().row_index.contains(block + "per_layer_output");
      b.per_layer = more ? take(block + "per_layer_output") : at::zeros_like(entering);
      leaving = take(block + "layer_output");
      blocks.push_back(std::move(b));
    }
    normed = take("final_norm_output");
  }
};

/// What a term of each block is multiplied by on its way to the final norm: the layer scalars from its block on.
std::vector<double> scales_from(const Model& model) {
  std::vector<double> scales(static_cast<size_t>(model.plan().num_layers()));
  double product = 1;
  for (size_t i = scales.size(); i-- > 0;) {
    const at::Tensor scalar = weight_of(model, "layers." + std::to_string(i), "layer_scalar");
    product *= scalar.defined() ? scalar.item<double>() : 1;
    scales[i] = product;
  }
  return scales;
}

}  // namespace

at::Tensor LogitAttribution::total() const {
  return embedding + (heads.sum(2) + attention_bias + mlps + per_layer).sum(1);
}

LogitAttribution direct_logit_attribution(const Model& model, const Prompt& given, const std::vector<int64_t>& tokens,
                                          int64_t index) {
  if (tokens.empty()) throw BadOption("tokens is empty: name at least one.");
  for (int64_t token : tokens)
    if (token < 0 || token >= model.plan().sizes.vocab_size)
      throw BadOption("token " + std::to_string(token) + " is outside the vocabulary.");
  Prompt prompt = given;
  if (prompt.ids.dim() == 1) prompt.ids = prompt.ids.unsqueeze(0);
  const at::Tensor mask = prompt.attention_mask ? *prompt.attention_mask : at::ones_like(prompt.ids);
  const Run run(model, prompt, token_columns(mask, index));
  const at::Tensor head = weight_of(model, "lm_head", "weight").index_select(0, at::tensor(tokens, at::kLong));
  const at::Tensor readout = frozen_norm(model, run.leaving, run.normed, "norm").unsqueeze(1) * head;
  auto term = [](const at::Tensor& added, const at::Tensor& direction) {
    return at::einsum("bd,btd->bt", {added, direction});
  };
  const std::vector<double> scales = scales_from(model);
  std::vector<at::Tensor> heads, biases, mlps, extras;
  int64_t most = 0;
  for (const Sizes& sizes : model.plan().layer_sizes) most = std::max(most, sizes.num_heads);
  for (size_t i = 0; i < run.blocks.size(); ++i) {
    const Run::Block& block = run.blocks[i];
    const std::string path = "layers." + std::to_string(i) + ".";
    const at::Tensor direction = readout * scales[i];
    const at::Tensor scale = frozen_norm(model, block.projected, block.attention, path + "post_attention_layernorm");
    const at::Tensor weight = weight_of(model, path + "self_attn.o_proj", "weight")
                                  .unflatten(1, {block.premix.size(1), block.premix.size(2)});
    const at::Tensor split = at::einsum("bnd,hnd->bnh", {block.premix, weight}) * scale.unsqueeze(1);
    heads.push_back(
        at::constant_pad_nd(at::einsum("bnd,btd->bnt", {split, direction}), {0, 0, 0, most - split.size(1)}));
    const at::Tensor bias = weight_of(model, path + "self_attn.o_proj", "bias");
    biases.push_back(term(bias.defined() ? bias * scale : at::zeros_like(scale), direction));
    mlps.push_back(term(block.mlp, direction));
    extras.push_back(term(block.per_layer, direction));
  }
  return {term(run.entering, readout * scales[0]).to(at::kCPU), at::stack(heads, 1).to(at::kCPU),
          at::stack(biases, 1).to(at::kCPU), at::stack(mlps, 1).to(at::kCPU), at::stack(extras, 1).to(at::kCPU)};
}

}  // namespace interventions
}  // namespace v0
}  // namespace gemloupe
