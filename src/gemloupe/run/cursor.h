// Runs a plan up to a position, and no further. Owns the live values and drops each after its last use. Knows no names.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "gemloupe/plan/plan.h"
#include "gemloupe/run/execute.h"
#include "gemloupe/run/weights.h"

namespace gemloupe {
inline namespace v0 {

/// One pass's inputs, checked: ids and mask int64 [batch, seq] (the mask as long as the whole run), positions [batch or
/// 1, seq].
struct PassInputs {
  at::Tensor ids, mask, positions;
};

class Cursor {
 public:
  Cursor(std::shared_ptr<const Plan> plan, std::shared_ptr<const Weights> weights, const PassInputs& inputs, bool eager,
         KvCache* cache = nullptr);

  Position position() const { return position_; }

  /// Runs every step before `target`. Steps that one operation can do run as one, unless `target` lies among them.
  void advance(Position target);

  /// The tensor as the operand sees it; undefined where this run did not make it (a pattern that was not asked for).
  at::Tensor get(const Operand& operand) const;
  const at::Tensor& slot(Slot slot) const { return slots_[static_cast<size_t>(slot)]; }
  /// Every tensor that is alive here: the slots', and those that were assigned to operands alone.
  std::vector<at::Tensor> live() const;
  /// The same place with tensors of its own where somebody else holds one, and so could write into it.
  std::unique_ptr<Cursor> apart() const;

  /// Leaves out the steps before `target`: what they would have made stays undefined, what dies in them is dropped.
  void skip_to(Position target);

  /// Replaces a value: every consumer still to run sees `tensor`, which has the operand's shape.
  void set(const Operand& operand, const at::Tensor& tensor);

  /// Whether the slot still is what another block's keys or values are, not a copy of them.
  bool is_borrowed(Slot slot) const { return borrowed_.contains(slot); }

  /// From here on the slot is this pass's own: what is written into it does not persist in a cache.
  void unshare(Slot slot);

  bool is_bound(Position step, int index) const { return bound_.contains({step, index}); }
  /// Replaces what one operand of one step reads; `view` is how `tensor` is looked at.
  void set_input(Position step, int index, const View& view, const at::Tensor& tensor);
  /// What `set_input` put there, or what the operand reads, as `view` shows it.
  at::Tensor get_input(Position step, int index, const View& view) const;

  /// The batch `times` times over: row r is what row r modulo batch was. Errors: BadValue inside a mixture's experts.
  void repeat(int64_t times);

  /// The steps from `first` up to `end` applied to `tensor` in the place of `from`: nothing is recorded, nothing moves.
  at::Tensor apply(Position first, Position end, Slot from, const at::Tensor& tensor) const;

  bool eager() const { return state_.eager; }
  bool has_cache() const { return state_.cache != nullptr; }
  const Weights& weights() const { return *weights_; }
  void end_pass();

 private:
  void run_step(Position at);
  bool run_fusion(Position target);
  void read_ahead(Position at);
  void run_op(const Op& op, const std::vector<Operand>& inputs, Position step, const std::vector<WeightId>& weights,
              const std::vector<Slot>& outputs);
  /// Recorded for autograd where an input or a weight requires it.
  void compute(const Op& op, std::span<const at::Tensor> in, const std::vector<WeightId>& weights,
               std::span<at::Tensor> out) const;
  void drop(Position after);
  bool inside_experts() const;
  bool has_no_batch(Slot slot, const at::Tensor& tensor) const;

  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const Weights> weights_;
  std::vector<at::Tensor> slots_;
  std::map<std::pair<Position, int>, at::Tensor> bound_;
  std::set<Slot> borrowed_;  ///< that still are what another block keeps
  std::set<Slot> unshared_;  ///< that the cache does not follow any more
  PassState state_;
  int64_t batch_;
  Position position_ = 0;
  size_t next_fusion_ = 0;
};

/// `tensor` [as stored] as `view` shows it, and back.
at::Tensor look(const at::Tensor& tensor, const View& view);
at::Tensor look_back(const at::Tensor& tensor, const View& view, int64_t batch);

}  // namespace v0
}  // namespace gemloupe
