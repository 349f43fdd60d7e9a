#include "gemloupe/run/prompt.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {
namespace {

std::string shape_of(const at::Tensor& tensor) {
  return shape_text(tensor.sizes().vec());
}

at::Tensor check_ids(const at::Tensor& given, int64_t vocab_size) {
  if (!given.defined() || given.numel() == 0) throw BadPrompt("the prompt is empty: a run needs at least one token.");
  if (at::isFloatingType(given.scalar_type()) || given.scalar_type() == at::kBool ||
      at::isComplexType(given.scalar_type()))
    throw BadPrompt("input_ids must be integers, but they are " + std::string(at::toString(given.scalar_type())) + ".");
  at::Tensor ids = given.dim() == 1 ? given.unsqueeze(0) : given;
  if (ids.dim() != 2)
    throw BadPrompt("input_ids must have the shape [batch, seq] or [seq], but it is " + shape_of(given) + ".");
  ids = ids.to(at::kCPU, at::kLong, /*non_blocking=*/false, /*copy=*/true).contiguous();
  if (!ids.has_storage())
    throw BadPrompt(
        "a run inside torch.func.grad or jacrev, which cannot differentiate it: use backward(), torch.autograd.grad, "
        "or "
        "torch.autograd.forward_ad.");
  const auto* first = ids.const_data_ptr<int64_t>();
  const auto* bad = std::find_if(first, first + ids.numel(), [&](int64_t id) { return id < 0 || id >= vocab_size; });
  if (bad != first + ids.numel()) {
    int64_t at = bad - first;
    throw BadPrompt("input_ids[" + std::to_string(at / ids.size(1)) + ", " + std::to_string(at % ids.size(1)) +
                    "] is " + std::to_string(*bad) + ", but the vocabulary has the ids 0 to " +
                    std::to_string(vocab_size - 1) + ".");
  }
  return ids;
}

at::Tensor check_mask(const std::optional<at::Tensor>& given, const at::Tensor& ids) {
  if (!given || !given->defined()) return at::ones_like(ids);
  at::Tensor mask = given->dim() == 1 ? given->unsqueeze(0) : *given;
  if (mask.sizes() != ids.sizes())
    throw BadPrompt("attention_mask must have input_ids' shape " + shape_of(ids) + ", but it is " + shape_of(*given) +
                    ".");
  at::Tensor whole = mask.to(at::kCPU, at::kLong, false, true).contiguous();
  if (!(mask.to(at::kCPU) == whole).all().item<bool>() || !((whole == 0) | (whole == 1)).all().item<bool>())
    throw BadPrompt("attention_mask must hold 0 (padding) and 1, and nothing else.");
  if (!whole.any(1).all().item<bool>()) throw BadPrompt("attention_mask leaves a row of the batch without a token.");
  return whole;
}

at::Tensor check_positions(const std::optional<at::Tensor>& given, const at::Tensor& ids, const at::Tensor& mask,
                           int64_t first) {
  if (!given || !given->defined()) {
    if (mask.all().item<bool>()) return at::arange(first, first + ids.size(1), ids.options()).unsqueeze(0);
    return (mask.cumsum(1) - 1).clamp_min(0) + first;
  }
  at::Tensor positions = given->dim() == 1 ? given->unsqueeze(0) : *given;
  if (positions.dim() != 2 || positions.size(1) != ids.size(1) ||
      (positions.size(0) != 1 && positions.size(0) != ids.size(0)))
    throw BadPrompt("position_ids must have the shape " + shape_of(ids) + " or [1, " + std::to_string(ids.size(1)) +
                    "], but it is " + shape_of(*given) + ".");
  if (at::isFloatingType(positions.scalar_type()) && !at::isfinite(positions).all().item<bool>())
    throw BadPrompt("position_ids holds NaN or infinity; positions are whole numbers from 0.");
  at::Tensor whole = positions.to(at::kCPU, at::kLong, false, true).contiguous();
  if (at::isFloatingType(positions.scalar_type()) && !(positions.to(at::kCPU) == whole).all().item<bool>())
    throw BadPrompt("position_ids holds fractions; positions are whole numbers from 0.");
  if (whole.min().item<int64_t>() < 0)
    throw BadPrompt("position_ids holds numbers below 0; positions are whole numbers from 0.");
  return whole;
}

}  // namespace

Prompt prompt_of(const std::vector<std::vector<int64_t>>& rows, int64_t pad) {
  size_t longest = 0;
  for (const auto& row : rows) {
    if (row.empty()) throw BadPrompt("the prompt is empty: a run needs at least one token.");
    longest = std::max(longest, row.size());
  }
  if (rows.empty()) throw BadPrompt("the list of prompts is empty.");
  auto batch = static_cast<int64_t>(rows.size()), length = static_cast<int64_t>(longest);
  at::Tensor ids = at::full({batch, length}, pad, at::kLong), mask = at::zeros({batch, length}, at::kLong);
  for (int64_t i = 0; i < batch; ++i) {
    const auto& row = rows[static_cast<size_t>(i)];
    auto from = length - static_cast<int64_t>(row.size());
    std::copy(row.begin(), row.end(), ids.mutable_data_ptr<int64_t>() + i * length + from);
    mask.select(0, i).narrow(0, from, length - from).fill_(1);
  }
  return {ids, mask, std::nullopt};
}

PassInputs check_prompt(const Prompt& prompt, int64_t vocab_size, const at::Device& device, int64_t first_position) {
  PassInputs inputs;
  inputs.ids = check_ids(prompt.ids, vocab_size);
  inputs.mask = check_mask(prompt.attention_mask, inputs.ids);
  inputs.positions = check_positions(prompt.position_ids, inputs.ids, inputs.mask, first_position);
  inputs.ids = inputs.ids.to(device);
  inputs.mask = inputs.mask.to(device);
  inputs.positions = inputs.positions.to(device);
  return inputs;
}

}  // namespace v0
}  // namespace gemloupe
