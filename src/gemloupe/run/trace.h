// One run that the caller pulls: reading a value runs the model up to it. Names, order, edits and their errors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gemloupe/run/cursor.h"

namespace gemloupe {
inline namespace v0 {

/// What a run does to a value as it passes: its argument is the live tensor, its result takes the value's place; an
/// undefined one leaves it.
using Action = std::function<at::Tensor(at::Tensor)>;

/// An edit that every run of a model makes.
struct StandingEdit {
  RowId row;
  Action action;
  std::string text;  ///< what it does, for people
};
using StandingEdits = std::shared_ptr<const std::vector<StandingEdit>>;

/// Everything that is alive at one place of a run, from which other runs can go on.
class TracePoint;

class Trace {
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

 public:
  Trace(std::shared_ptr<const Plan> plan, std::shared_ptr<const Weights> weights, const PassInputs& inputs, bool eager,
        KvCache* cache = nullptr);
  /// Goes on from a point of another run, of the same model: what lies before it is not computed again.
  explicit Trace(const TracePoint& point);

  const Plan& plan() const { return *plan_; }

  /// The live tensor of that name, in the layout that the catalogue states, after running the model up to it. Writing
  /// into it is an edit: what is downstream follows. Undefined for what the reference leaves out as well (the pattern
  /// in a fused block's `self_attn.output`). Errors: UnknownName, Absent, OutOfOrder, OutsideTrace.
  at::Tensor read(const std::string& name) { return read(plan_->find_row(name)); }
  at::Tensor read(RowId row);

  /// Replaces the value. A standard value or a module's output reaches every consumer still to run, a module's input
  /// only the module. The shape must be the value's; another floating dtype is cast. Errors: as for read, and ReadOnly,
  /// BadValue.
  void write(const std::string& name, const at::Tensor& tensor) { write(plan_->find_row(name), tensor); }
  void write(RowId row, const at::Tensor& tensor);

  /// `function` of the value takes its place. It may also edit in place and return its argument.
  void edit(const std::string& name, const std::function<at::Tensor(at::Tensor)>& function);

  /// Makes these edits as the run passes their values, before anything else reads them there.
  void stand(StandingEdits edits);

  /// Whenever this run passes `row`, before anything else reads it there. Errors: as for read.
  void when(RowId row, Action action);
  /// Runs on to the last value that an action of `when` waits for.
  void run_actions();

  /// The module's steps are not run: its result is `value`, or of a tuple its first member. Errors: OutOfOrder,
  /// BadValue, and CannotSkip where something behind the module reads what is made inside it.
  void skip(ModuleId module, const at::Tensor& value) { skip(module, module, value); }
  /// The modules from `first` to `last`, which follow each other, are not run, and each results in `value`; undefined:
  /// in what enters the first. Refused before anything is done.
  void skip(ModuleId first, ModuleId last, const at::Tensor& value);

  /// Values record gradients, from the embeddings on: read before anything has run.
  void record_gradients();
  bool records_gradients() const { return records_; }
  /// The tensors that this run has handed out with their gradients, and that somebody still holds.
  std::vector<at::Tensor> recorded() const;

  /// What is alive just before `row` can be read. Errors: as for read.
  std::shared_ptr<TracePoint> point(RowId row);

  /// A tensor that later edits in place do not change. Of a temporary, `snapshot(read(name))`, it is the live tensor
  /// itself where it can be: the run copies the value if it is accessed again. Of a tensor that the caller keeps, and
  /// so could write, it is a copy.
  at::Tensor snapshot(at::Tensor&& tensor);
  at::Tensor snapshot(const at::Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; }

  /// [batch, seq] of this run.
  std::pair<int64_t, int64_t> input_size() const { return input_size_; }

  /// The logits of the last position [batch, vocab], after whatever was written into them; runs the rest of the pass.
  at::Tensor last_logits();

  // --- rows of logits: the head is applied only to the rows that are asked for.
  /// Whether rows can still be computed on their own (under eager all are computed, so that slices keep the reference's
  /// bits).
  bool rows_are_lazy(RowId row) const;
  /// What the head reads, after running up to it.
  at::Tensor head_input(RowId row);
  /// The head, and what follows it up to `row`, applied to rows of `head_input`.
  at::Tensor apply_head(RowId row, const at::Tensor& rows) const;

  /// Nothing runs after this; every later access is refused.
  void stop() { finish(); }
  void finish();
  bool finished() const { return cursor_ == nullptr; }

  /// `where` names the place in the caller's code of the next access, for messages; empty where it is not known.
  void at(std::string where) { where_ = std::move(where); }

 private:
  Cursor& cursor();
  void go_to(const Row& row);
  void advance(Position target);
  void stand_behind(Position place);
  at::Tensor handed_out(const Operand& operand);
  at::Tensor bound_argument(const Row& row);
  void adopt_leaves();
  void refuse_skipped(const Row& row) const;
  void refuse_skip(const Module& first, const Module& last) const;
  std::vector<int64_t> shape_of(const Row& row) const;
  at::Tensor checked_shape(const Row& row, const at::Tensor& tensor) const;
  at::Tensor retaining(const Operand& operand);
  void retain(const at::Tensor& tensor);
  at::Tensor checked(const Row& row, const at::Tensor& current, const at::Tensor& tensor) const;
  void protect(const Operand& operand);
  bool is_protected(const at::Tensor& tensor) const;
  void remember(const at::Tensor& tensor);

  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<Cursor> cursor_;
  std::pair<int64_t, int64_t> input_size_;
  std::string last_name_, last_where_, where_;
  /// Storages that somebody outside this run keeps: a value in one of them is copied before it is handed out again.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> kept_;
  struct Waiting {
    RowId row;
    Action action;
    bool standing;
  };
  std::multimap<Position, Waiting> actions_;
  StandingEdits standing_;
  /// Views that were handed out since the run stood still: one that is made a leaf takes its value's place.
  std::vector<std::pair<Operand, WeakTensor>> views_;
  std::vector<WeakTensor> recorded_;
  std::vector<ModuleId> skipped_;
  std::map<std::pair<Slot, View::Kind>, at::Tensor> retained_;  ///< what was handed out with its gradient
  at::Tensor passed_logits_;                                    ///< where the run went on to what is derived of them
  bool records_ = false;
  bool took_rows_ = false;  ///< of the head's: what it reads may not change any more
};

class TracePoint {
 public:
  TracePoint(std::shared_ptr<const Plan> of_plan, std::unique_ptr<Cursor> at, std::pair<int64_t, int64_t> size,
             StandingEdits edits)
      : plan(std::move(of_plan)), cursor(std::move(at)), input_size(size), standing(std::move(edits)) {}

  /// The same place of a run whose batch is this one's `times` times over: row r is row r modulo batch of this one.
  /// Errors: BadOption, and BadValue inside a mixture's experts, whose rows are no batch.
  std::shared_ptr<TracePoint> repeated(int64_t times) const;

  const std::shared_ptr<const Plan> plan;
  const std::unique_ptr<const Cursor> cursor;
  const std::pair<int64_t, int64_t> input_size;
  const StandingEdits standing;  ///< of its run: those before it are made, those behind it go along
};

}  // namespace v0
}  // namespace gemloupe
