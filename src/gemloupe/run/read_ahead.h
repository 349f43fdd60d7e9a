// Weights that do not fit in memory: the mapped pages of the block to come are read while this one computes, and those
// behind are given back, but for as many blocks as memory holds. Nothing is copied and no value depends on it.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gemloupe/plan/plan.h"

namespace gemloupe {
inline namespace v0 {

/// Memory that this process may fill: what is available, or what its control group leaves; GEMLOUPE_MEMORY (such as
/// "800M" or "16G") in its place.
int64_t memory_to_fill();

class ReadAhead {
 public:
  struct Range {
    std::byte* first = nullptr;
    size_t size = 0;
  };

  /// `mapped` is by weight: where it lies in a file's pages, empty where it was copied. Null where all of it fits into
  /// `memory` bytes: then the kernel's own reading does as well.
  static std::shared_ptr<ReadAhead> make(const Plan& plan, const std::vector<Range>& mapped, int64_t memory);

  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// A run is about to take `step`.
  void enter(Position step);

  /// It is about to use these experts' slices [experts, …] of a weight.
  void use_experts(const at::Tensor& indices, const at::Tensor& weight) const;

  /// For tests: how many of the stages stay in memory.
  size_t kept() const { return kept_; }
  size_t stages() const { return stages_.size(); }

 private:
  ReadAhead(std::vector<int> stage_of, std::vector<std::vector<Range>> stages, size_t kept);
  void work();

  std::vector<int> stage_of_;               ///< by step
  std::vector<std::vector<Range>> stages_;  ///< what is before the blocks, each block, what is behind them
  size_t kept_;                             ///< the first ones are never given back

  std::mutex mutex_;
  std::condition_variable wake_;
  int current_ = -1;  ///< the stage that runs
  bool ends_ = false;
  std::thread worker_;
};

}  // namespace v0
}  // namespace gemloupe
