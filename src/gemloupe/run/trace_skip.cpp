// Modules that a run leaves out: what may be left out, and what takes the place of their results.
#include <ATen/ATen.h>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/run/trace.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// The row of what a module returns, or of the first member of a tuple; the others stay undefined when it is skipped.
RowId first_leaf(const Part& part) {
  return part.is_tuple ? first_leaf(part.members.at(0)) : part.row;
}

bool made_in(const Plan& plan, const Module& module, Slot slot) {
  const Position made = plan.producer[static_cast<size_t>(slot)];
  return made >= module.first && made < module.end;
}

/// The standard value that lies where `row` does, or `row` itself: a port's axes are that value's.
const Row& with_axes(const Plan& plan, const Row& row) {
  for (const Row& known : plan.rows)
    if (known.spec && known.value.slot == row.value.slot && known.value.view.kind == row.value.view.kind) return known;
  return row;
}

}  // namespace

void Trace::refuse_skip(const Module& first, const Module& last) const {
  const Row& result = plan_->row(first_leaf(*last.result));
  Module whole = first;
  whole.end = last.end;
  std::vector<std::string> readers;
  for (Position at = whole.end; at < static_cast<Position>(plan_->steps.size()); ++at)
    for (const Operand& input : plan_->steps[static_cast<size_t>(at)].inputs) {
      if (input.slot == result.value.slot || !made_in(*plan_, whole, input.slot)) continue;
      const std::string& reader = plan_->module(plan_->steps[static_cast<size_t>(at)].module).path;
      if (readers.empty() || readers.back() != reader) readers.push_back(reader);
    }
  const std::string what = "'" + first.path + "'" + (&first == &last ? "" : " to '" + last.path + "'");
  if (!readers.empty())
    throw CannotSkip(what + " cannot be skipped: " + quoted_list(readers, " and ") + " read what is made inside it.");
}

void Trace::skip(ModuleId first_id, ModuleId last_id, const at::Tensor& value) {
  const Module &first = plan_->module(first_id), &last = plan_->module(last_id);
  check(first.parent == last.parent && first_id <= last_id, "modules of one parent are skipped in their order");
  for (const Module* module : {&first, &last})
    if (!module->result || module->end <= module->first)
      throw CannotSkip("'" + module->path + "' cannot be skipped: " +
                       (module->no_ports.empty() ? "it runs nothing" : module->no_ports) + ".");
  if (cursor().position() > first.first)
    throw OutOfOrder("'" + first.path + "' is to be skipped, but this trace has already reached '" + last_name_ +
                     "', which lies behind its beginning. Skip it before anything inside it is read.");
  refuse_skip(first, last);
  const at::Tensor given = value.defined() ? value : read(first.arguments.at(0).part.row);
  at::Tensor fit = checked_shape(plan_->row(first_leaf(*last.result)), given);
  advance(first.first);
  for (ModuleId id : plan_->module(first.parent).children) {
    if (id < first_id || id > last_id) continue;
    const Row& result = plan_->row(first_leaf(*plan_->module(id).result));
    cursor_->skip_to(plan_->module(id).end);
    cursor_->set(result.value, id == last_id ? fit : fit.clone());
    skipped_.push_back(id);
    last_name_ = result.name;
  }
  last_where_ = where_;
}

/// What takes a value's place where that has not been made.
at::Tensor Trace::checked_shape(const Row& row, const at::Tensor& tensor) const {
  if (!tensor.defined()) throw BadValue("'" + row.name + "' is replaced by None; it must be a tensor.");
  if (!at::isFloatingType(tensor.scalar_type()))
    throw BadValue("'" + row.name + "' must be floating-point numbers, but the tensor is " +
                   std::string(at::toString(tensor.scalar_type())) + ".");
  const Row& known = with_axes(*plan_, row);
  const std::vector<int64_t> wanted = shape_of(row);
  auto described = [&](const std::vector<int64_t>& shape) {
    return known.spec ? named_shape_text(known.spec->axes, shape) : shape_text(shape);
  };
  if (tensor.sizes() != at::IntArrayRef(wanted))
    throw BadValue("'" + row.name + "' must have the shape " + described(wanted) + ", but the tensor has " +
                   described(tensor.sizes().vec()) + ".");
  return tensor.to(cursor_->weights().device(), cursor_->weights().dtype(), /*non_blocking=*/false, /*copy=*/true);
}

/// The catalogue's, where a standard value lies there, else as a run of shapes alone makes it: the value itself may
/// never be made.
std::vector<int64_t> Trace::shape_of(const Row& row) const {
  if (const Row& known = with_axes(*plan_, row); known.spec) {
    std::vector<int64_t> sizes = known.sizes;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (known.spec->axes[i] == Axis::batch) sizes[i] = input_size_.first;
      if (known.spec->axes[i] == Axis::seq) sizes[i] = input_size_.second;
    }
    return sizes;
  }
  const Weights& weights = cursor_->weights();
  auto shapes = std::make_shared<const Weights>(Weights::shapes(*plan_, weights.dtype()));
  const at::Tensor ids = at::zeros({input_size_.first, input_size_.second}, at::kLong);
  Cursor scan(plan_, std::move(shapes), {ids, at::ones_like(ids), ids}, cursor_->eager());
  scan.advance(row.position);
  return scan.get(row.value).sizes().vec();
}

void Trace::refuse_skipped(const Row& row) const {
  for (ModuleId id : skipped_) {
    const Module& module = plan_->module(id);
    if (!made_in(*plan_, module, row.value.slot) || row.value.slot == plan_->row(first_leaf(*module.result)).value.slot)
      continue;
    throw NotInThisRun("'" + row.name + "' is inside '" + module.path + "', which this trace has skipped.");
  }
}

}  // namespace v0
}  // namespace gemloupe
