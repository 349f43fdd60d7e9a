#include "gemloupe/run/trace.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/UndefinedTensorImpl.h>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// Whether both are the same numbers at the same place. What torch.func wraps lies nowhere.
bool are_one(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.has_storage() && b.has_storage() && a.is_alias_of(b) &&
         a.const_data_ptr() == b.const_data_ptr() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type();
}

}  // namespace

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
  actions_.clear();
  retained_.clear();
  views_.clear();
}

void Trace::go_to(const Row& row) {
  refuse_skipped(row);
  if (row.position < cursor().position()) {
    std::string last = "'" + last_name_ + "'" + (last_where_.empty() ? "" : " (" + last_where_ + ")");
    std::string here = "'" + row.name + "'" + (where_.empty() ? "" : " (" + where_ + ")");
    throw OutOfOrder(here + " comes before " + last +
                     ", which this trace has already reached. A body reads and writes in the order of the "
                     "forward pass: move this access above that one, or use a second trace.");
  }
  advance(row.position);
  last_name_ = row.name;
  last_where_ = where_;
}

void Trace::advance(Position target) {
  adopt_leaves();
  while (!actions_.empty() && actions_.begin()->first <= target) {
    auto node = actions_.extract(actions_.begin());
    const auto& [id, action, standing] = node.mapped();
    const Row& row = plan_->row(id);
    try {
      refuse_skipped(row);
      cursor_->advance(row.position);
      // A later pass makes a standing edit again, of keys as they were: the cache does not keep what it wrote.
      if (standing) cursor_->unshare(row.value.slot);
      at::Tensor result = action(read(id));
      cursor();  // which the action may have ended
      if (result.defined()) write(id, result);
      adopt_leaves();
    } catch (...) {
      actions_.insert(std::move(node));  // a body that goes on all the same is refused again
      throw;
    }
  }
  const Row& logits = plan_->row(plan_->logits);
  if (target > logits.position && cursor_->position() <= logits.position) {
    cursor_->advance(logits.position);
    passed_logits_ = cursor_->get(logits.value);
  }
  cursor_->advance(target);
}

at::Tensor Trace::last_logits() {
  const RowId row = plan_->logits;
  if (rows_are_lazy(row)) return apply_head(row, head_input(row).slice(1, -1)).select(1, -1);
  return (passed_logits_.defined() ? passed_logits_ : read(row)).select(1, -1);
}

void Trace::when(RowId id, Action action) {
  check(id >= 0 && id < static_cast<RowId>(plan_->rows.size()), "a row that the plan has");
  const Row& row = plan_->row(id);
  if (row.position < cursor().position())
    throw OutOfOrder("'" + row.name + "' has passed already: this trace has reached '" + last_name_ + "'.");
  actions_.emplace(row.position, Waiting{id, std::move(action), false});
}

void Trace::stand(StandingEdits edits) {
  standing_ = std::move(edits);
  stand_behind(-1);
}

void Trace::stand_behind(Position place) {
  if (!standing_) return;
  for (const StandingEdit& edit : *standing_)
    if (const Position at = plan_->row(edit.row).position; at > place)
      actions_.emplace(at, Waiting{edit.row, edit.action, true});
}

void Trace::run_actions() {
  if (!actions_.empty()) advance(actions_.rbegin()->first);
}

at::Tensor Trace::read(RowId id) {
  check(id >= 0 && id < static_cast<RowId>(plan_->rows.size()), "a row that the plan has");
  const Row& row = plan_->row(id);
  // Sizes do not change: they can be read at any time.
  if (row.spec == &values::input_size) return cursor(), at::tensor({input_size_.first, input_size_.second}, at::kLong);
  if (id == plan_->next_token_probs && rows_are_lazy(id)) {
    at::Tensor rows = head_input(id).slice(1, -1), probabilities = apply_head(id, rows);
    if (probabilities.requires_grad()) retain(probabilities);
    return probabilities;
  }
  go_to(row);
  if (row.is_argument && !row.consumers.empty()) {
    auto [step, index] = row.consumers.front();
    if (cursor_->is_bound(step, index)) return bound_argument(row);
  }
  protect(row.value);
  // Behind a value that records, as behind one that a caller trains, all do.
  return cursor_->slot(row.value.slot).defined() && cursor_->slot(row.value.slot).requires_grad()
             ? retaining(row.value)
             : handed_out(row.value);
}

/// What was assigned to a module's input alone.
at::Tensor Trace::bound_argument(const Row& row) {
  auto [step, index] = row.consumers.front();
  const View& view = row.value.view;
  at::Tensor bound = cursor_->get_input(step, index, view);
  if (!is_protected(bound) && !bound.requires_grad()) return bound;
  c10::AutoGradMode recording(bound.requires_grad());
  at::Tensor own = bound.clone();
  if (own.requires_grad()) retain(own);
  for (auto [s, i] : row.consumers) cursor_->set_input(s, i, view, own);
  return own;
}

at::Tensor Trace::handed_out(const Operand& operand) {
  at::Tensor value = cursor_->get(operand);
  if (operand.view.kind != View::Kind::Same && value.defined() && !value.requires_grad())
    views_.emplace_back(operand, value.getIntrusivePtr());
  return value;
}

// `requires_grad_()` of a value that is its slot's own tensor needs nothing; of a view it makes a leaf beside the slot.
void Trace::adopt_leaves() {
  for (const auto& [operand, view] : std::exchange(views_, {}))
    if (auto alive = view.lock(); alive && alive->requires_grad() && !cursor().slot(operand.slot).requires_grad()) {
      c10::AutoGradMode recording(true);
      cursor_->set(operand, at::Tensor(std::move(alive)));
    }
}

void Trace::write(RowId id, const at::Tensor& tensor) {
  check(id >= 0 && id < static_cast<RowId>(plan_->rows.size()), "a row that the plan has");
  const Row& row = plan_->row(id);
  if (row.spec && row.spec->read_only)
    throw ReadOnly("'" + row.name +
                   "' is derived from other values and cannot be written; write logits, or what it is derived from.");
  if (took_rows_ && row.position == plan_->head)
    throw OutOfOrder("'" + row.name + "' comes before '" + last_name_ +
                     "', rows of which this trace has computed already: write it above that access.");
  go_to(row);
  at::Tensor current =
      row.is_argument && !row.consumers.empty()
          ? cursor_->get_input(row.consumers.front().first, row.consumers.front().second, row.value.view)
          : cursor_->get(row.value);
  // `value *= 2` reads the tensor, writes into it, and assigns it to where it already is.
  if (are_one(current, tensor) &&
      (!tensor.requires_grad() || tensor.unsafeGetTensorImpl() == current.unsafeGetTensorImpl()))
    return;
  at::Tensor fit = checked(row, current, tensor);
  if (row.is_argument) {
    for (auto [step, index] : row.consumers) cursor_->set_input(step, index, row.value.view, fit);
  } else {
    cursor_->set(row.value, fit);
  }
}

at::Tensor Trace::checked(const Row& row, const at::Tensor& current, const at::Tensor& tensor) const {
  const std::vector<Axis> axes = row.spec ? row.spec->axes : std::vector<Axis>{};
  auto described = [&](const at::Tensor& t) {
    auto shape = t.sizes().vec();
    return axes.empty() ? shape_text(shape) : named_shape_text(axes, shape);
  };
  if (!tensor.defined()) throw BadValue("'" + row.name + "' is assigned None; it must be a tensor.");
  if (!current.defined()) throw BadValue("'" + row.name + "' is not made in this run, so it cannot be replaced.");
  if (tensor.layout() != at::kStrided || (tensor.is_meta() && !current.is_meta()))
    throw BadValue("'" + row.name + "' must be a dense tensor with numbers, but the assigned one " +
                   (tensor.is_meta() ? "is on the meta device." : "is sparse: assign its .to_dense()."));
  if (tensor.sizes() != current.sizes())
    throw BadValue("'" + row.name + "' must have the shape " + described(current) + ", but the assigned tensor has " +
                   described(tensor) + ". To write a part, assign to a slice of it.");
  bool integers = !at::isFloatingType(current.scalar_type());
  if (at::isComplexType(tensor.scalar_type()) || integers == at::isFloatingType(tensor.scalar_type()))
    throw BadValue("'" + row.name + "' must be " + std::string(at::toString(current.scalar_type())) +
                   ", but the assigned tensor is " + at::toString(tensor.scalar_type()) + ".");
  // A copy: what the caller does with its tensor afterwards is no edit of this run.
  return tensor.to(current.device(), current.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

void Trace::edit(const std::string& name, const std::function<at::Tensor(at::Tensor)>& function) {
  RowId row = plan_->find_row(name);
  write(row, function(read(row)));
}

// --------------------------------------------------------------------------------------------------------- gradients

void Trace::record_gradients() {
  records_ = true;
  // A leaf of this run's own, so that the weights stay frozen.
  when(plan_->find_row(std::string(values::token_embeddings.name)), [](at::Tensor embeddings) {
    if (embeddings.requires_grad()) return at::Tensor();  // the caller trains the table itself
    return embeddings.detach().clone().requires_grad_(true);
  });
}

// An identity node that the run goes on from: what is handed out has its gradient, and may be written in place although
// the step that made it keeps its own result for the way back (a softmax does).
at::Tensor Trace::retaining(const Operand& operand) {
  const at::Tensor& live = cursor_->slot(operand.slot);
  at::Tensor& own = retained_[{operand.slot, operand.view.kind}];
  if (own.defined() && live.defined() && own.is_alias_of(live)) return own;
  c10::AutoGradMode recording(true);
  own = cursor_->get(operand).clone();
  retain(own);
  cursor_->set(operand, own);
  return own;
}

void Trace::retain(const at::Tensor& tensor) {
  if (!tensor.is_leaf()) tensor.retain_grad();
  recorded_.emplace_back(tensor.getIntrusivePtr());
}

std::vector<at::Tensor> Trace::recorded() const {
  std::vector<at::Tensor> alive;
  for (const WeakTensor& tensor : recorded_)
    if (auto held = tensor.lock()) alive.emplace_back(std::move(held));
  return alive;
}

// ------------------------------------------------------------------------------------------------------------ points

std::shared_ptr<TracePoint> Trace::point(RowId id) {
  const Row& row = plan_->row(id);
  if (cursor().has_cache()) throw BadValue("a point is taken in a trace of one pass, not of a generation.");
  go_to(row);
  auto copy = cursor_->apart();
  // Both runs hold the same tensors from here on: whichever touches one first takes a copy.
  for (const at::Tensor& live : copy->live()) remember(live);
  return std::make_shared<TracePoint>(plan_, std::move(copy), input_size_, standing_);
}

std::shared_ptr<TracePoint> TracePoint::repeated(int64_t times) const {
  if (times < 1) throw BadOption("a point is repeated once or more, but times is " + std::to_string(times) + ".");
  auto copy = std::make_unique<Cursor>(*cursor);
  copy->repeat(times);
  return std::make_shared<TracePoint>(plan, std::move(copy), std::pair(input_size.first * times, input_size.second),
                                      standing);
}

Trace::Trace(const TracePoint& point)
    : plan_(point.plan),
      cursor_(std::make_unique<Cursor>(*point.cursor)),
      input_size_(point.input_size),
      standing_(point.standing) {
  for (const at::Tensor& live : cursor_->live()) remember(live);
  stand_behind(cursor_->position());
  last_name_ = "the point that this trace started from";
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
  if (tensor.requires_grad()) {  // the very node: a copy would have no gradient
    // A part's gradient is a part of the whole's, which whoever keeps the part takes from there.
    tensor.is_view() ? recorded_.emplace_back(tensor.getIntrusivePtr()), void() : retain(tensor);
    remember(tensor);
    return tensor;
  }
  // A part of a larger tensor would keep all of it alive.
  bool is_part = tensor.has_storage() && tensor.storage().nbytes() > tensor.nbytes();
  // The value itself, and what it is a view of; any more is a view that the caller keeps, and could write. Or the
  // caller keeps what it is a view of, beside the run and the view.
  bool has_views = tensor.has_storage() && tensor.storage().use_count() > (tensor.is_view() ? 2U : 1U);
  has_views = has_views || (tensor.is_view() && tensor._base().use_count() > 2);
  if (is_part || has_views || finished()) return tensor.clone();
  remember(tensor);
  return tensor;
}

// --------------------------------------------------------------------------------------------------------- lazy rows

bool Trace::rows_are_lazy(RowId row) const {
  // An action waits for the whole.
  if (!actions_.empty() && actions_.rbegin()->first > plan_->head) return false;
  return cursor_ && !cursor_->eager() && cursor_->position() <= plan_->head && plan_->row(row).position > plan_->head;
}

at::Tensor Trace::head_input(RowId id) {
  check(rows_are_lazy(id), "rows of logits are asked for before the head has run");
  advance(plan_->head);
  took_rows_ = true;
  last_name_ = plan_->row(id).name;
  last_where_ = where_;
  return cursor_->get_input(plan_->head, 0, {});
}

at::Tensor Trace::apply_head(RowId row, const at::Tensor& rows) const {
  return cursor_->apply(plan_->head, plan_->row(row).position, plan_->stream_before_head, rows);
}

}  // namespace v0
}  // namespace gemloupe
