#include "gemloupe/run/trace.h"

#include <ATen/ATen.h>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {

Trace::Trace(std::shared_ptr<const Plan> plan, std::shared_ptr<const Weights> weights, const PassInputs& inputs,
             bool eager, KvCache* cache)
    : plan_(std::move(plan)),
      cursor_(std::make_unique<Cursor>(plan_, std::move(weights), inputs, eager, cache)),
      input_size_(inputs.ids.size(0), inputs.ids.size(1)) {}

Cursor& Trace::cursor() {
  if (!cursor_)
    throw OutsideTrace(
        "this trace has ended: read and write values inside its body, and .save() what is needed after it.");
  return *cursor_;
}

void Trace::finish() {
  if (!cursor_) return;
  cursor_->end_pass();
  cursor_.reset();
  kept_.clear();
}

void Trace::go_to(const Row& row) {
  if (row.position < cursor().position()) {
    std::string last = "'" + last_name_ + "'" + (last_where_.empty() ? "" : " (" + last_where_ + ")");
    std::string here = "'" + row.name + "'" + (where_.empty() ? "" : " (" + where_ + ")");
    throw OutOfOrder(here + " comes before " + last +
                     ", which this trace has already reached. A body reads and writes in the order of the "
                     "forward pass: move this access above that one, or use a second trace.");
  }
  cursor_->advance(row.position);
  last_name_ = row.name;
  last_where_ = where_;
}

at::Tensor Trace::read(RowId id) {
  check(id >= 0 && id < static_cast<RowId>(plan_->rows.size()), "a row that the plan has");
  const Row& row = plan_->row(id);
  // Sizes do not change: they can be read at any time.
  if (row.spec == &values::input_size) return cursor(), at::tensor({input_size_.first, input_size_.second}, at::kLong);
  if (id == plan_->next_token_probs && rows_are_lazy(id)) {
    at::Tensor rows = head_input(id).slice(1, -1);
    return apply_head(id, rows);
  }
  go_to(row);
  if (row.is_argument && !row.consumers.empty()) {
    auto [step, index] = row.consumers.front();
    const View& view = row.value.view;
    at::Tensor bound = cursor_->get_input(step, index, view);
    if (!is_protected(bound)) return bound;
    if (!bound.is_alias_of(cursor_->slot(row.value.slot))) {
      for (auto [s, i] : row.consumers) cursor_->set_input(s, i, view, bound.clone());
      return cursor_->get_input(step, index, view);
    }
  }
  protect(row.value);
  return cursor_->get(row.value);
}

void Trace::write(RowId id, const at::Tensor& tensor) {
  check(id >= 0 && id < static_cast<RowId>(plan_->rows.size()), "a row that the plan has");
  const Row& row = plan_->row(id);
  if (row.spec && row.spec->read_only)
    throw ReadOnly("'" + row.name +
                   "' is derived from other values and cannot be written; write logits, or what it is derived from.");
  go_to(row);
  at::Tensor current = row.is_argument && !row.consumers.empty()
                           ? cursor_->get_input(row.consumers.front().first, row.consumers.front().second, row.value.view)
                           : cursor_->get(row.value);
  // `value *= 2` reads the tensor, writes into it, and assigns it to where it already is.
  if (current.defined() && tensor.defined() && tensor.is_alias_of(current) && tensor.data_ptr() == current.data_ptr() &&
      tensor.sizes() == current.sizes() && tensor.strides() == current.strides() &&
      tensor.scalar_type() == current.scalar_type())
    if (!tensor.requires_grad() || tensor.unsafeGetTensorImpl() == current.unsafeGetTensorImpl()) return;
  at::Tensor fit = checked(row, current, tensor);
  if (row.is_argument) {
    for (auto [step, index] : row.consumers) cursor_->set_input(step, index, row.value.view, fit);
  } else {
    cursor_->set(row.value, fit);
  }
  remember(fit);
}

at::Tensor Trace::checked(const Row& row, const at::Tensor& current, const at::Tensor& tensor) const {
  const std::vector<Axis> axes = row.spec ? row.spec->axes : std::vector<Axis>{};
  auto described = [&](const at::Tensor& t) {
    auto shape = t.sizes().vec();
    return axes.empty() ? shape_text(shape) : named_shape_text(axes, shape);
  };
  if (!tensor.defined()) throw BadValue("'" + row.name + "' is assigned None; it must be a tensor.");
  if (!current.defined()) throw BadValue("'" + row.name + "' is not made in this run, so it cannot be replaced.");
  if (tensor.sizes() != current.sizes())
    throw BadValue("'" + row.name + "' must have the shape " + described(current) + ", but the assigned tensor has " +
                   described(tensor) + ". To write a part, assign to a slice of it.");
  bool integers = !at::isFloatingType(current.scalar_type());
  if (at::isComplexType(tensor.scalar_type()) || integers == at::isFloatingType(tensor.scalar_type()))
    throw BadValue("'" + row.name + "' must be " + std::string(at::toString(current.scalar_type())) +
                   ", but the assigned tensor is " + at::toString(tensor.scalar_type()) + ".");
  return tensor.to(current.device(), current.scalar_type());
}

void Trace::edit(const std::string& name, const std::function<at::Tensor(at::Tensor)>& function) {
  RowId row = plan_->find_row(name);
  write(row, function(read(row)));
}

// --------------------------------------------------------------------------------------------------------- snapshots

void Trace::remember(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const c10::StorageImpl* key = tensor.storage().unsafeGetStorageImpl();
  kept_.insert_or_assign(key, tensor.storage().getWeakStorageImpl());
}

bool Trace::is_protected(const at::Tensor& tensor) const {
  if (kept_.empty() || !tensor.defined() || !tensor.has_storage()) return false;
  auto found = kept_.find(tensor.storage().unsafeGetStorageImpl());
  return found != kept_.end() && !found->second.expired();
}

void Trace::protect(const Operand& operand) {
  const at::Tensor& live = cursor_->slot(operand.slot);
  if (is_protected(live) || cursor_->is_borrowed(operand.slot)) cursor_->set({operand.slot, {}}, live.clone());
}

at::Tensor Trace::snapshot(at::Tensor&& tensor) {
  if (!tensor.defined()) return tensor;
  // A part of a larger tensor would keep all of it alive.
  bool is_part = tensor.has_storage() && tensor.storage().nbytes() > tensor.nbytes();
  // The value itself, and what it is a view of; any more is a view that the caller keeps, and could write.
  bool has_views = tensor.has_storage() && tensor.storage().use_count() > (tensor.is_view() ? 2U : 1U);
  if (is_part || has_views || finished()) return tensor.clone();
  remember(tensor);
  return tensor;
}

// --------------------------------------------------------------------------------------------------------- lazy rows

bool Trace::rows_are_lazy(RowId row) const {
  return cursor_ && !cursor_->eager() && cursor_->position() <= plan_->head && plan_->row(row).position > plan_->head;
}

at::Tensor Trace::head_input(RowId id) {
  check(rows_are_lazy(id), "rows of logits are asked for before the head has run");
  cursor_->advance(plan_->head);
  last_name_ = plan_->row(id).name;
  last_where_ = where_;
  return cursor_->get_input(plan_->head, 0, {});
}

at::Tensor Trace::apply_head(RowId row, const at::Tensor& rows) const {
  return cursor_->apply(plan_->head, plan_->row(row).position, plan_->stream_before_head, rows);
}

}  // namespace v0
}  // namespace gemloupe
