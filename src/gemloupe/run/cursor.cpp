#include "gemloupe/run/cursor.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <optional>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/interrupt.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// Autograd is recorded if and only if something asks for it. An untraced pass keeps no graph, and its operations do
/// not even go through autograd's dispatch, which is a tenth of their overhead.
class Recording {
 public:
  explicit Recording(bool records) : mode_(records) {
    if (!records) below_.emplace();
  }

 private:
  c10::AutoGradMode mode_;
  std::optional<at::AutoDispatchBelowAutograd> below_;
};

/// Backwards, or forwards by a tangent that it carries.
bool is_differentiated(const at::Tensor& x) {
  return x.defined() && (x.requires_grad() || x._fw_grad(/*level=*/0).defined());
}

}  // namespace

at::Tensor look(const at::Tensor& tensor, const View& view) {
  if (!tensor.defined()) return tensor;
  switch (view.kind) {
    case View::Kind::Same:
      return tensor;
    case View::Kind::Heads:
      return tensor.unflatten(2, {-1, view.head_dim});
    case View::Kind::HeadsFirst:
      return tensor.unflatten(2, {-1, view.head_dim}).transpose(1, 2);
    case View::Kind::Flat:
      return tensor.flatten(2);
    case View::Kind::Transposed:
      return tensor.transpose(1, 2);
    case View::Kind::Rows:
      return tensor.flatten(0, 1);
  }
  return tensor;
}

at::Tensor look_back(const at::Tensor& tensor, const View& view, int64_t batch) {
  switch (view.kind) {
    case View::Kind::Same:
      return tensor;
    case View::Kind::Heads:
      return tensor.flatten(2);
    case View::Kind::HeadsFirst:
      return tensor.transpose(1, 2).flatten(2);
    case View::Kind::Flat:
      return tensor.unflatten(2, {-1, view.head_dim});
    case View::Kind::Transposed:
      return tensor.transpose(1, 2);
    case View::Kind::Rows:
      return tensor.unflatten(0, {batch, -1});
  }
  return tensor;
}

Cursor::Cursor(std::shared_ptr<const Plan> plan, std::shared_ptr<const Weights> weights, const PassInputs& inputs,
               bool eager, KvCache* cache)
    : plan_(std::move(plan)),
      weights_(std::move(weights)),
      slots_(static_cast<size_t>(plan_->slots)),
      batch_(inputs.ids.size(0)) {
  // Moved only where weights hold no numbers (a scan): what a run leaves out, its mask decides all the same.
  const at::Device& device = weights_->device();
  slots_[static_cast<size_t>(plan_->input_ids)] = inputs.ids.to(device);
  slots_[static_cast<size_t>(plan_->attention_mask)] = inputs.mask.to(device);
  slots_[static_cast<size_t>(plan_->position_ids)] = inputs.positions.to(device);
  state_.padding = inputs.mask;
  state_.tokens = inputs.ids.size(1);
  state_.seen = inputs.mask.size(1);
  state_.cache = cache;
  state_.eager = eager;
  state_.dtype = weights_->dtype();
}

void Cursor::advance(Position target) {
  check(target >= position_ && target <= static_cast<Position>(plan_->steps.size()),
        "a cursor moves forward inside its plan");
  while (position_ < target) {
    throw_if_interrupted();
    if (!run_fusion(target)) run_step(position_);
  }
}

void Cursor::skip_to(Position target) {
  check(target >= position_ && target <= static_cast<Position>(plan_->steps.size()),
        "a cursor moves forward inside its plan");
  for (; position_ < target; ++position_) drop(position_);
}

bool Cursor::run_fusion(Position target) {
  const auto& fusions = plan_->fusions;
  while (next_fusion_ < fusions.size() && fusions[next_fusion_].first < position_) ++next_fusion_;
  if (state_.eager || next_fusion_ == fusions.size()) return false;
  const Fusion& fusion = fusions[next_fusion_];
  if (fusion.first != position_ || target < fusion.end) return false;
  if (auto bound = bound_.lower_bound({fusion.first, 0}); bound != bound_.end() && bound->first.first < fusion.end)
    return false;
  if (weights_->read_ahead()) weights_->read_ahead()->enter(fusion.first);
  run_op(fusion.op, fusion.inputs, -1, fusion.weights, fusion.outputs);
  for (Position at = fusion.first; at < fusion.end; ++at) drop(at);
  position_ = fusion.end;
  return true;
}

void Cursor::run_step(Position at) {
  const Step& step = plan_->steps[static_cast<size_t>(at)];
  if (weights_->read_ahead()) read_ahead(at);
  run_op(step.op, step.inputs, at, step.weights, step.outputs);
  drop(at);
  position_ = at + 1;
}

void Cursor::read_ahead(Position at) {
  const Step& step = plan_->steps[static_cast<size_t>(at)];
  weights_->read_ahead()->enter(at);
  if (std::holds_alternative<op::ExpertsGateUp>(step.op) || std::holds_alternative<op::ExpertsDown>(step.op))
    weights_->read_ahead()->use_experts(get_input(at, 1, {}), weights_->stored(step.weights[0]).numbers);
}

void Cursor::drop(Position after) {
  for (Slot slot : plan_->steps[static_cast<size_t>(after)].dies_after) slots_[static_cast<size_t>(slot)].reset();
  if (!bound_.empty()) bound_.erase(bound_.begin(), bound_.lower_bound({after + 1, 0}));
}

void Cursor::run_op(const Op& op, const std::vector<Operand>& inputs, Position step,
                    const std::vector<WeightId>& weights, const std::vector<Slot>& outputs) {
  c10::SmallVector<at::Tensor, 4> in, out(outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    in.push_back(step >= 0 && !bound_.empty() ? get_input(step, static_cast<int>(i), inputs[i].view) : get(inputs[i]));
  compute(op, {in.data(), in.size()}, weights, {out.data(), out.size()});
  for (size_t i = 0; i < outputs.size(); ++i) slots_[static_cast<size_t>(outputs[i])] = std::move(out[i]);
  if (std::holds_alternative<op::Borrow>(op)) borrowed_.insert(outputs.begin(), outputs.end());
}

void Cursor::compute(const Op& op, std::span<const at::Tensor> in, const std::vector<WeightId>& weights,
                     std::span<at::Tensor> out) const {
  c10::SmallVector<ops::Weight, 2> w;
  for (WeightId id : weights) w.push_back(weights_->stored(id));
  Recording recording(std::any_of(in.begin(), in.end(), is_differentiated) ||
                      std::any_of(w.begin(), w.end(), [](const auto& weight) { return weight.requires_grad(); }));
  execute(op, in, {w.data(), w.size()}, out, state_);
}

at::Tensor Cursor::get(const Operand& operand) const {
  return look(slots_[static_cast<size_t>(operand.slot)], operand.view);
}

at::Tensor Cursor::get_input(Position step, int index, const View& view) const {
  if (auto found = bound_.find({step, index}); found != bound_.end()) return look(found->second, view);
  const Operand& operand = plan_->steps[static_cast<size_t>(step)].inputs[static_cast<size_t>(index)];
  return get({operand.slot, view});
}

void Cursor::set(const Operand& operand, const at::Tensor& tensor) {
  slots_[static_cast<size_t>(operand.slot)] = look_back(tensor, operand.view, batch_);
  borrowed_.erase(operand.slot);
  // Consumers still to run read the value again, also those whose input had been replaced on its own.
  std::erase_if(bound_, [&](const auto& entry) {
    return plan_->steps[static_cast<size_t>(entry.first.first)].inputs[static_cast<size_t>(entry.first.second)].slot ==
           operand.slot;
  });
  Position producer = plan_->producer[static_cast<size_t>(operand.slot)];
  if (state_.cache && producer >= 0 && !unshared_.contains(operand.slot)) {
    const Step& step = plan_->steps[static_cast<size_t>(producer)];
    if (const auto* extend = std::get_if<op::Extend>(&step.op))
      slots_[static_cast<size_t>(operand.slot)] =
          state_.cache->replace(extend->cache, step.outputs[0] == operand.slot, tensor);
  }
}

void Cursor::set_input(Position step, int index, const View& view, const at::Tensor& tensor) {
  bound_[{step, index}] = look_back(tensor, view, batch_);
}

std::vector<at::Tensor> Cursor::live() const {
  std::vector<at::Tensor> live = slots_;
  for (const auto& [place, tensor] : bound_) live.push_back(tensor);
  return live;
}

std::unique_ptr<Cursor> Cursor::apart() const {
  auto is_shared = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.has_storage() && (tensor.use_count() > 1 || tensor.storage().use_count() > 1);
  };
  std::vector<Slot> shared;
  for (Slot slot = 0; slot < plan_->slots; ++slot)
    if (is_shared(this->slot(slot))) shared.push_back(slot);
  auto copy = std::make_unique<Cursor>(*this);
  for (Slot slot : shared) copy->slots_[static_cast<size_t>(slot)] = this->slot(slot).clone();
  for (auto& [place, tensor] : copy->bound_) tensor = tensor.clone();
  return copy;
}

bool Cursor::inside_experts() const {
  bool inside = false;
  for (Position at = 0; at < position_; ++at) {
    const Op& op = plan_->steps[static_cast<size_t>(at)].op;
    inside = std::holds_alternative<op::ExpertsGateUp>(op) || (inside && !std::holds_alternative<op::ExpertsDown>(op));
  }
  return inside;
}

void Cursor::unshare(Slot slot) {
  const Position producer = plan_->producer[static_cast<size_t>(slot)];
  if (!state_.cache || producer < 0 || unshared_.contains(slot)) return;
  if (!std::holds_alternative<op::Extend>(plan_->steps[static_cast<size_t>(producer)].op)) return;
  at::Tensor& live = slots_[static_cast<size_t>(slot)];
  c10::AutoGradMode recording(live.requires_grad());
  live = live.clone();
  unshared_.insert(slot);
}

bool Cursor::has_no_batch(Slot slot, const at::Tensor& tensor) const {
  if (tensor.size(0) != 1) return false;
  const Position made = plan_->producer[static_cast<size_t>(slot)];
  return batch_ > 1 || slot == plan_->position_ids ||
         (made >= 0 && std::holds_alternative<op::Rotary>(plan_->steps[static_cast<size_t>(made)].op));
}

void Cursor::repeat(int64_t times) {
  check(!state_.cache, "a pass of a generation is not repeated");
  if (inside_experts())
    throw BadValue(
        "a point inside a mixture's experts cannot be repeated: their values have a row for each choice of a token. "
        "Take it at router_logits, expert_weights, expert_indices, or behind them at expert_outputs.");
  auto wider = [&](const at::Tensor& tensor) {
    std::vector<int64_t> repeats(static_cast<size_t>(tensor.dim()), 1);
    repeats[0] = times;
    return tensor.repeat(repeats);
  };
  for (Slot slot = 0; slot < plan_->slots; ++slot)
    if (at::Tensor& live = slots_[static_cast<size_t>(slot)]; live.defined() && !has_no_batch(slot, live))
      live = wider(live);
  for (auto& [place, tensor] : bound_) {
    const Operand& operand = plan_->steps[static_cast<size_t>(place.first)].inputs[static_cast<size_t>(place.second)];
    if (!has_no_batch(operand.slot, tensor)) tensor = wider(tensor);
  }
  state_.padding = wider(state_.padding);
  batch_ *= times;
}

at::Tensor Cursor::apply(Position first, Position end, Slot from, const at::Tensor& tensor) const {
  Slot link = from;
  for (Position at = first; at < end; ++at) {
    const Step& step = plan_->steps[static_cast<size_t>(at)];
    check(step.inputs.size() == 1 && step.inputs[0].slot == link && step.outputs.size() == 1,
          "only a chain of steps can be applied");
    link = step.outputs[0];
  }
  at::Tensor value = tensor;
  for (Position at = first; at < end; ++at) {
    const Step& step = plan_->steps[static_cast<size_t>(at)];
    at::Tensor out;
    compute(step.op, {&value, 1}, step.weights, {&out, 1});
    value = out;
  }
  return value;
}

void Cursor::end_pass() {
  if (state_.cache) state_.cache->end_pass(state_.tokens);
}

}  // namespace v0
}  // namespace gemloupe
