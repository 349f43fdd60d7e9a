#include "gemloupe/run/weights.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <set>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/store/dequantize.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// The mapped tensor itself; the tensor keeps its file mapped.
at::Tensor mapped(const StoredTensor& stored) {
  auto keep = stored.file;
  return at::from_blob(
      stored.data, stored.shape, [keep](void*) {}, at::TensorOptions().dtype(scalar_type(stored.dtype)));
}

at::Tensor dequantised(const StoredTensor& stored) {
  at::Tensor out = at::empty(stored.shape, at::TensorOptions().dtype(at::kFloat));
  const int64_t rows = row_count(stored), width = rows ? out.numel() / rows : 0;
  at::parallel_for(0, rows, std::max<int64_t>(1, 65536 / std::max<int64_t>(width, 1)), [&](int64_t first, int64_t end) {
    dequantize_rows(stored, first, end - first, out.data_ptr<float>() + first * width);
  });
  return out;
}

class Binder {
 public:
  Binder(const Plan& plan, const Checkpoint& checkpoint, at::ScalarType dtype, const at::Device& device)
      : plan_(plan), checkpoint_(checkpoint), dtype_(dtype), device_(device) {}

  std::vector<at::Tensor> bind() {
    for (const WeightSlot& slot : plan_.weights) {
      stored_.push_back(nullptr);
      tensors_.push_back(slot.tied_to ? at::Tensor() : load(slot));
    }
    refuse_missing();
    for (size_t i = 0; i < plan_.weights.size(); ++i)
      if (auto owner = plan_.weights[i].tied_to) {
        tensors_[i] = tensors_[static_cast<size_t>(*owner)];
        stored_[i] = stored_[static_cast<size_t>(*owner)];
        if (const StoredTensor* unused = find(plan_.weights[i]))
          used_.insert(unused->name);  // a file may repeat a tied head
      }
    refuse_left_over();
    return std::move(tensors_);
  }

  /// By weight: its pages in a file, empty where it was copied out of them.
  std::vector<ReadAhead::Range> mapped_ranges(const std::vector<at::Tensor>& tensors) const {
    std::vector<ReadAhead::Range> ranges(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i)
      if (stored_[i] && tensors[i].is_cpu() && tensors[i].const_data_ptr() == stored_[i]->data)
        ranges[i] = {stored_[i]->data, tensors[i].nbytes()};
    return ranges;
  }

 private:
  const StoredTensor* find(const WeightSlot& slot) const {
    if (checkpoint_.is_gguf()) return slot.gguf.empty() ? nullptr : checkpoint_.find(slot.gguf);
    if (const StoredTensor* same = checkpoint_.find(slot.name)) return same;
    for (const auto& [native, disk] : plan_.spellings)
      if (slot.name.starts_with(native))
        if (const StoredTensor* found = checkpoint_.find(disk + slot.name.substr(native.size()))) return found;
    return nullptr;
  }

  at::Tensor load(const WeightSlot& slot) {
    const StoredTensor* stored = find(slot);
    if (!stored) {
      missing_.push_back(checkpoint_.is_gguf() ? slot.gguf : slot.name);
      return {};
    }
    used_.insert(stored->name);
    stored_.back() = stored;
    if (stored->shape != slot.shape)
      throw BadCheckpoint(stored->path.string() + ": tensor '" + stored->name + "' has shape " +
                          shape_text(stored->shape) + ", but the config makes it " + shape_text(slot.shape) +
                          ". The weights and config.json belong to different models.");
    if (!is_floating(stored->dtype) && !is_quantised(stored->dtype))
      throw BadCheckpoint(stored->path.string() + ": tensor '" + stored->name + "' holds " +
                          std::string(traits(stored->dtype).name) + ", but weights are floating-point numbers.");
    at::Tensor tensor = is_quantised(stored->dtype) ? dequantised(*stored) : mapped(*stored);
    if (checkpoint_.is_gguf() && slot.gguf_adds_one) tensor = tensor.to(at::kFloat) - 1.0;
    return tensor.to(device_, dtype_);
  }

  void refuse_missing() const {
    if (missing_.empty()) return;
    std::vector<std::string> some(missing_.begin(),
                                  missing_.begin() + static_cast<long>(std::min<size_t>(missing_.size(), 4)));
    throw BadCheckpoint(checkpoint_.path().string() + ": " + std::to_string(missing_.size()) +
                        " weights that the config asks for are missing, such as " + quoted_list(some, " and ") +
                        ". Is a shard missing, or does config.json belong to another model?");
  }

  void refuse_left_over() const {
    std::vector<std::string> left;
    for (const StoredTensor& tensor : checkpoint_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      bool ignored = false;
      for (const std::string& glob : plan_.ignored_weights) ignored = ignored || glob_matches(glob, tensor.name);
      if (!ignored && left.size() < 4) left.push_back(tensor.name);
    }
    if (!left.empty())
      throw BadCheckpoint(checkpoint_.path().string() +
                          ": it holds weights that this model has no place for, such as " + quoted_list(left, " and ") +
                          ". Does config.json belong to another model, or are adapters merged in?");
  }

  const Plan& plan_;
  const Checkpoint& checkpoint_;
  at::ScalarType dtype_;
  at::Device device_;
  std::vector<at::Tensor> tensors_;
  std::vector<const StoredTensor*> stored_;
  std::vector<std::string> missing_;
  std::set<std::string> used_;
};

}  // namespace

Weights Weights::bind(const Plan& plan, const Checkpoint& checkpoint, at::ScalarType dtype, const at::Device& device) {
  Weights weights;
  weights.dtype_ = dtype;
  weights.device_ = device;
  Binder binder(plan, checkpoint, dtype, device);
  weights.tensors_ = binder.bind();
  weights.read_ahead_ = ReadAhead::make(plan, binder.mapped_ranges(weights.tensors_), memory_to_fill());
  return weights;
}

Weights Weights::shapes(const Plan& plan, at::ScalarType dtype) {
  Weights weights;
  weights.dtype_ = dtype;
  weights.device_ = at::kMeta;
  for (const WeightSlot& slot : plan.weights)
    weights.tensors_.push_back(at::empty(slot.shape, at::TensorOptions().device(at::kMeta).dtype(dtype)));
  return weights;
}

}  // namespace v0
}  // namespace gemloupe
