// The keys and values of earlier passes. A sliding block keeps only its window.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

namespace gemloupe {
inline namespace v0 {

class KvCache {
 public:
  /// As many as `Plan::caches`.
  explicit KvCache(int64_t caches) : layers_(static_cast<size_t>(caches)) {}

  /// Tokens of earlier passes, padding included.
  int64_t seen() const { return seen_; }
  /// How many of them a block keeps: all, or the window's part that a next query can still see.
  int64_t kept(std::optional<int64_t> window) const { return window ? std::min(seen_, *window - 1) : seen_; }

  /// Keys and values [batch, kv_heads, new, dim] behind those that are kept. The result is a view of the cache: what is
  /// written in it persists.
  std::pair<at::Tensor, at::Tensor> extend(int layer, std::optional<int64_t> window, const at::Tensor& keys,
                                           const at::Tensor& values);

  /// An assignment to what `extend` returned persists, too. The result is the view of the cache that has it now.
  at::Tensor replace(int layer, bool is_keys, const at::Tensor& tensor);

  void end_pass(int64_t tokens) { seen_ += tokens; }

 private:
  struct Buffer {
    at::Tensor storage;  ///< [batch, kv_heads, capacity, dim]
    int64_t start = 0, length = 0;
    at::Tensor view() const { return storage.narrow(2, start, length); }
    at::Tensor append(const at::Tensor& tensor, int64_t keep);
  };
  struct Layer {
    Buffer keys, values;
    int64_t seen = 0;
  };
  std::vector<Layer> layers_;
  int64_t seen_ = 0;
};

}  // namespace v0
}  // namespace gemloupe
