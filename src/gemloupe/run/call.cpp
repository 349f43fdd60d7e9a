#include "gemloupe/run/call.h"

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

#include <unordered_map>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/interrupt.h"
#include "gemloupe/base/text.h"
#include "gemloupe/run/cursor.h"
#include "gemloupe/run/execute.h"

namespace gemloupe {
inline namespace v0 {
namespace {

class Call {
 public:
  Call(const Plan& plan, const Weights& weights, const Module& module, const at::Tensor& input, bool ids, bool eager)
      : plan_(plan), weights_(weights), module_(module), input_(input) {
    const bool has_rows = input.dim() >= (ids ? 2 : 3);
    batch_ = has_rows ? input.size(0) : 1;
    state_.tokens = state_.seen = has_rows ? input.size(1) : 1;
    state_.eager = eager;
    state_.dtype = weights.dtype();
    auto options = at::TensorOptions().dtype(at::kLong).device(weights.device());
    state_.padding = at::ones({batch_, state_.tokens}, options);
    slots_[plan.attention_mask] = state_.padding;
    slots_[plan.position_ids] =
        at::arange(plan.first_position, plan.first_position + state_.tokens, options).unsqueeze(0).expand({batch_, -1});
  }

  void positions(const at::Tensor& given) {
    at::Tensor rows = given.dim() == 1 ? given.unsqueeze(0) : given;
    if (at::isFloatingType(rows.scalar_type()) || rows.dim() != 2 || rows.size(1) != state_.tokens)
      throw BadValue("position_ids must be integers [seq] or [batch, seq], but they have the shape " +
                     shape_text(given.sizes().vec()) + " for " + std::to_string(state_.tokens) + " tokens.");
    slots_[plan_.position_ids] = rows.to(weights_.device(), at::kLong).expand({batch_, -1});
  }

  void run() {
    const Row& first = plan_.row(module_.arguments.at(0).part.row);
    slots_[first.value.slot] = look_back(input_, first.value.view, batch_);
    for (Position at = module_.first; at < module_.end; ++at) {
      throw_if_interrupted();
      step(at);
    }
  }

  std::vector<at::Tensor> result() const {
    std::vector<at::Tensor> leaves;
    collect(*module_.result, leaves);
    return leaves;
  }

 private:
  const Step& at(Position position) const { return plan_.steps[static_cast<size_t>(position)]; }

  void step(Position position) {
    const Step& s = at(position);
    c10::SmallVector<at::Tensor, 4> in, out(s.outputs.size());
    c10::SmallVector<ops::Weight, 2> w;
    for (const Operand& operand : s.inputs) in.push_back(look(need(operand.slot, s), operand.view));
    for (WeightId id : s.weights) w.push_back(weights_.stored(id));
    execute(s.op, {in.data(), in.size()}, {w.data(), w.size()}, {out.data(), out.size()}, state_);
    for (size_t i = 0; i < s.outputs.size(); ++i) slots_[s.outputs[i]] = std::move(out[i]);
  }

  /// A mask and a rotary table are made where a block needs them: of their stream they read no more than the dtype.
  at::Tensor need(Slot slot, const Step& reader) {
    if (auto found = slots_.find(slot); found != slots_.end()) return found->second;
    if (std::holds_alternative<op::Mask>(reader.op) || std::holds_alternative<op::Rotary>(reader.op)) return input_;
    const Position made = plan_.producer[static_cast<size_t>(slot)];
    if (made >= 0 &&
        (std::holds_alternative<op::Mask>(at(made).op) || std::holds_alternative<op::Rotary>(at(made).op))) {
      step(made);
      return slots_[slot];
    }
    const std::string from = made < 0 ? "the run's inputs" : plan_.module(at(made).module).path;
    throw CannotCall("'" + module_.path + "' cannot be called with one tensor: it reads what '" + from +
                     "' makes. Read its output inside a trace.");
  }

  void collect(const Part& part, std::vector<at::Tensor>& leaves) const {
    if (part.row >= 0) {
      const Operand& operand = plan_.row(part.row).value;
      auto found = slots_.find(operand.slot);
      leaves.push_back(found == slots_.end() ? at::Tensor() : look(found->second, operand.view));
    }
    for (const Part& member : part.members) collect(member, leaves);
  }

  const Plan& plan_;
  const Weights& weights_;
  const Module& module_;
  at::Tensor input_;
  int64_t batch_ = 1;
  PassState state_;
  std::unordered_map<Slot, at::Tensor> slots_;
};

/// Whether a slot holds ids: a run's own, or those in which some are replaced.
bool holds_ids(const Plan& plan, Slot slot) {
  const Position made = plan.producer[static_cast<size_t>(slot)];
  return slot == plan.input_ids ||
         (made >= 0 && std::holds_alternative<op::Replace>(plan.steps[static_cast<size_t>(made)].op));
}

/// What a module takes, as its argument's standard value says: a block is called with [batch, seq, hidden_size].
void check_axes(const Plan& plan, const Module& module, const at::Tensor& input) {
  const Operand& wanted = plan.row(module.arguments[0].part.row).value;
  for (const Row& row : plan.rows) {
    if (!row.spec || row.value.slot != wanted.slot || row.value.view.kind != wanted.view.kind) continue;
    if (input.dim() == static_cast<int64_t>(row.spec->axes.size()) || module.children.empty()) return;
    throw BadValue("'" + module.path + "' takes a tensor " + axes_text(row.spec->axes) + ", but it is called with " +
                   shape_text(input.sizes().vec()) + ".");
  }
}

}  // namespace

std::vector<at::Tensor> call_module(const Plan& plan, const Weights& weights, ModuleId id, const at::Tensor& input,
                                    const std::optional<at::Tensor>& positions, bool eager) {
  const Module& module = plan.module(id);
  if (!module.result || module.arguments.empty() || module.arguments[0].part.row < 0)
    throw CannotCall("'" + module.path +
                     "' cannot be called: " + (module.no_ports.empty() ? "it takes no tensor" : module.no_ports) + ".");
  if (!input.defined()) throw BadValue("'" + module.path + "' is called with None; it takes a tensor.");
  const bool integers = holds_ids(plan, plan.row(module.arguments[0].part.row).value.slot);
  check_axes(plan, module, input);
  at::Tensor x = integers ? input.to(weights.device()) : input.to(weights.device(), weights.dtype());
  try {
    Call call(plan, weights, module, x, integers, eager);
    if (positions) call.positions(*positions);
    call.run();
    return call.result();
  } catch (const c10::Error& error) {
    std::string message = error.what_without_backtrace();
    throw BadValue("'" + module.path + "' does not take a tensor of the shape " + shape_text(input.sizes().vec()) +
                   ": " + message.substr(0, message.find('\n')));
  }
}

}  // namespace v0
}  // namespace gemloupe
