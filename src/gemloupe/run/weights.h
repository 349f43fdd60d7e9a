// A plan's weight slots bound to tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gemloupe/ops/weight.h"
#include "gemloupe/plan/plan.h"
#include "gemloupe/run/read_ahead.h"
#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

/// Whether matrices that products only read may stay as they lie in the file: bfloat16 in a float32 run, blocks.
enum class Storage { OfRun, AsStored };

class Weights {
 public:
  /// Binds every slot of `plan`. A tensor that already has `dtype` on the CPU stays mapped: nothing is copied, an edit
  /// in place is private to this process. Errors: BadCheckpoint for tensors that are missing, left over, or of a shape
  /// that contradicts the config.
  static Weights bind(const Plan& plan, const Checkpoint& checkpoint, at::ScalarType dtype, const at::Device& device,
                      Storage storage = Storage::OfRun);

  /// Tensors of the plan's shapes without numbers, on libtorch's meta device: a run of them makes shapes alone.
  static Weights shapes(const Plan& plan, at::ScalarType dtype);

  /// As a run reads it.
  ops::Weight stored(WeightId id) const;
  /// As numbers of the run's dtype, for those who read it and change it. Of what is stored otherwise a copy, which runs
  /// read while anyone holds it, and from then on if it was changed.
  at::Tensor at(WeightId id) const;
  at::ScalarType dtype() const { return dtype_; }
  const at::Device& device() const { return device_; }
  /// Null where the mapped weights fit in memory.
  ReadAhead* read_ahead() const { return read_ahead_.get(); }

 private:
  /// Tied weights share one.
  struct Held {
    std::mutex mutex;
    ops::Weight weight;
    at::Tensor lent;  ///< the copy
    void take_back();
  };
  std::vector<std::shared_ptr<Held>> held_;
  at::ScalarType dtype_ = at::kFloat;
  at::Device device_ = at::kCPU;
  std::shared_ptr<ReadAhead> read_ahead_;
};

/// What a slot's weight is in the checkpoint, in whichever of the plan's spellings; null where it is not there.
const StoredTensor* find_stored(const Plan& plan, const Checkpoint& checkpoint, const WeightSlot& slot);

at::ScalarType scalar_type(DType dtype);

/// "float32", "bfloat16", "float16" (also "torch.bfloat16"). Errors: BadOption.
at::ScalarType parse_dtype(const std::string& name);
std::string dtype_name(at::ScalarType dtype);

/// The dtype that the checkpoint's own weights have; float32 where they are quantised.
at::ScalarType own_dtype(const Checkpoint& checkpoint);

}  // namespace v0
}  // namespace gemloupe
