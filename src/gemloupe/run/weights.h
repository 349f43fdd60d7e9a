// A plan's weight slots bound to tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gemloupe/plan/plan.h"
#include "gemloupe/run/read_ahead.h"
#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

class Weights {
 public:
  /// Binds every slot of `plan`. A tensor that already has `dtype` on the CPU stays mapped: nothing is copied, an edit
  /// in place is private to this process. Errors: BadCheckpoint for tensors that are missing, left over, or of a shape
  /// that contradicts the config.
  static Weights bind(const Plan& plan, const Checkpoint& checkpoint, at::ScalarType dtype, const at::Device& device);

  /// Tensors of the plan's shapes without numbers, on libtorch's meta device: a run of them makes shapes alone.
  static Weights shapes(const Plan& plan, at::ScalarType dtype);

  const at::Tensor& at(WeightId id) const { return tensors_[static_cast<size_t>(id)]; }
  at::ScalarType dtype() const { return dtype_; }
  const at::Device& device() const { return device_; }
  /// Null where the mapped weights fit in memory.
  ReadAhead* read_ahead() const { return read_ahead_.get(); }

 private:
  std::vector<at::Tensor> tensors_;
  at::ScalarType dtype_ = at::kFloat;
  at::Device device_ = at::kCPU;
  std::shared_ptr<ReadAhead> read_ahead_;
};

at::ScalarType scalar_type(DType dtype);

/// "float32", "bfloat16", "float16" (also "torch.bfloat16"). Errors: BadOption.
at::ScalarType parse_dtype(const std::string& name);
std::string dtype_name(at::ScalarType dtype);

/// The dtype that the checkpoint's own weights have; float32 where they are quantised.
at::ScalarType own_dtype(const Checkpoint& checkpoint);

}  // namespace v0
}  // namespace gemloupe
