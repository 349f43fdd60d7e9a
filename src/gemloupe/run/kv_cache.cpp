#include "gemloupe/run/kv_cache.h"

#include <ATen/ATen.h>

#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {

at::Tensor KvCache::Buffer::append(const at::Tensor& tensor, int64_t keep) {
  const int64_t added = tensor.size(2);
  if (tensor.requires_grad() || (storage.defined() && storage.requires_grad())) {
    // The way back needs what earlier passes have read as it was: nothing is written in place.
    storage = keep ? at::cat({storage.narrow(2, start + length - keep, keep), tensor}, 2) : tensor.clone();
    start = 0;
    length = keep + added;
    return view();
  }
  start += length - keep;
  length = keep;
  if (!storage.defined() || start + keep + added > storage.size(2)) {
    // Twice the need: a copy every so often, none a token.
    auto sizes = tensor.sizes().vec();
    sizes[2] = 2 * (keep + added) + 64;
    at::Tensor larger = at::empty(sizes, tensor.options());
    if (keep) larger.narrow(2, 0, keep).copy_(view());
    storage = larger;
    start = 0;
  }
  storage.narrow(2, start + keep, added).copy_(tensor);
  length = keep + added;
  return view();
}

std::pair<at::Tensor, at::Tensor> KvCache::extend(int layer, std::optional<int64_t> window, const at::Tensor& keys,
                                                  const at::Tensor& values) {
  Layer& l = layers_[static_cast<size_t>(layer)];
  if (l.seen != seen_)
    throw CannotSkip(
        "a block did not run in an earlier pass of this generation, where it was skipped or the pass was stopped, and "
        "has "
        "no keys and values of those tokens. Skip it in every pass, or from some pass on.");
  l.seen += keys.size(2);
  const int64_t keep = kept(window);
  at::Tensor all_keys = l.keys.append(keys, keep);
  return {all_keys, l.values.append(values, keep)};
}

at::Tensor KvCache::replace(int layer, bool is_keys, const at::Tensor& tensor) {
  Layer& l = layers_[static_cast<size_t>(layer)];
  Buffer& buffer = is_keys ? l.keys : l.values;
  if (!tensor.requires_grad() && !buffer.storage.requires_grad()) return buffer.view().copy_(tensor);
  buffer = {tensor, 0, tensor.size(2)};
  return tensor;
}

}  // namespace v0
}  // namespace gemloupe
