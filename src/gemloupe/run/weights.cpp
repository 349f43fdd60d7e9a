#include "gemloupe/run/weights.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <set>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/store/dequantize.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// What is mapped, where it lies; the tensor keeps its file mapped.
at::Tensor mapped(const StoredTensor& stored, at::IntArrayRef shape, at::ScalarType dtype) {
  auto keep = stored.file;
  return at::from_blob(
      stored.data, shape, [keep](void*) {}, at::TensorOptions().dtype(dtype));
}
at::Tensor mapped(const StoredTensor& stored) {
  return mapped(stored, stored.shape, scalar_type(stored.dtype));
}

/// The formats that products read as they are.
std::optional<ops::kernels::QuantisedFormat> format_of(DType dtype) {
  using ops::kernels::QuantisedFormat;
  switch (dtype) {
    case DType::Q8_0:
      return QuantisedFormat::Q8_0;
    case DType::Q5_0:
      return QuantisedFormat::Q5_0;
    case DType::Q4_0:
      return QuantisedFormat::Q4_0;
    case DType::Q4_K:
      return QuantisedFormat::Q4_K;
    case DType::Q5_K:
      return QuantisedFormat::Q5_K;
    case DType::Q6_K:
      return QuantisedFormat::Q6_K;
    default:
      return std::nullopt;
  }
}

/// The blocks where they lie: [rows, bytes of a row].
at::Tensor mapped_blocks(const StoredTensor& stored) {
  return mapped(stored, {stored.shape[0], static_cast<int64_t>(stored.bytes) / stored.shape[0]}, at::kByte);
}

/// By weight: whether only products without a bias, and look-ups, read it.
std::vector<bool> only_in_products(const Plan& plan) {
  std::vector<bool> only(plan.weights.size(), true);
  for (const Step& step : plan.steps)
    for (WeightId id : step.weights) {
      const bool product = std::holds_alternative<op::Linear>(step.op) && step.weights.size() == 1;
      if (!product && !std::holds_alternative<op::Embed>(step.op)) only[static_cast<size_t>(id)] = false;
    }
  return only;
}

at::Tensor dequantised(const StoredTensor& stored) {
  at::Tensor out = at::empty(stored.shape, at::TensorOptions().dtype(at::kFloat));
  const int64_t rows = row_count(stored), width = rows ? out.numel() / rows : 0;
  at::parallel_for(0, rows, std::max<int64_t>(1, 65536 / std::max<int64_t>(width, 1)), [&](int64_t first, int64_t end) {
    dequantize_rows(stored, first, end - first, out.data_ptr<float>() + first * width);
  });
  return out;
}

/// Bit for bit, some rows at a time.
bool same_numbers(const ops::Weight& weight, const at::Tensor& numbers) {
  constexpr int64_t kAtOnce = 1 << 20;
  const auto bits = numbers.element_size() == 2 ? at::kShort : at::kInt;
  const int64_t rows = numbers.size(0),
                some = std::max<int64_t>(1, kAtOnce * rows / std::max<int64_t>(1, numbers.numel()));
  for (int64_t first = 0; first < rows; first += some) {
    const int64_t count = std::min(some, rows - first);
    const ops::Weight part{weight.numbers.narrow(0, first, count), weight.blocks};
    if (!part.as(numbers.scalar_type()).view(bits).equal(numbers.narrow(0, first, count).view(bits))) return false;
  }
  return true;
}

class Binder {
 public:
  Binder(const Plan& plan, const Checkpoint& checkpoint, at::ScalarType dtype, const at::Device& device,
         Storage storage)
      : plan_(plan), checkpoint_(checkpoint), dtype_(dtype), device_(device) {
    const bool may = storage == Storage::AsStored && device.is_cpu() && (dtype == at::kFloat || dtype == at::kBFloat16);
    as_stored_ = may ? only_in_products(plan) : std::vector<bool>(plan.weights.size(), false);
  }

  std::vector<ops::Weight> bind() {
    for (size_t i = 0; i < plan_.weights.size(); ++i) {
      stored_.push_back(nullptr);
      tensors_.push_back(plan_.weights[i].tied_to ? ops::Weight() : load(plan_.weights[i], as_stored_[i]));
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
  std::vector<ReadAhead::Range> mapped_ranges(const std::vector<ops::Weight>& weights) const {
    std::vector<ReadAhead::Range> ranges(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      const at::Tensor& numbers = weights[i].numbers;
      if (stored_[i] && numbers.is_cpu() && numbers.const_data_ptr() == stored_[i]->data)
        ranges[i] = {stored_[i]->data, numbers.nbytes()};
    }
    return ranges;
  }

 private:
  const StoredTensor* find(const WeightSlot& slot) const { return find_stored(plan_, checkpoint_, slot); }

  ops::Weight load(const WeightSlot& slot, bool as_stored) {
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
    if (as_stored && stored->shape.size() == 2 && stored->shape[0] > 0) {
      const bool whole = stored->shape[1] % traits(stored->dtype).block_size == 0;  // rows of blocks
      if (auto format = format_of(stored->dtype); format && whole) return {mapped_blocks(*stored), format};
      if (stored->dtype == DType::BF16) return {mapped(*stored), std::nullopt};
    }
    at::Tensor tensor = is_quantised(stored->dtype) ? dequantised(*stored) : mapped(*stored);
    if (checkpoint_.is_gguf() && slot.gguf_adds_one) tensor = tensor.to(at::kFloat) - 1.0;
    return {tensor.to(device_, dtype_), std::nullopt};
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
  std::vector<bool> as_stored_;
  std::vector<ops::Weight> tensors_;
  std::vector<const StoredTensor*> stored_;
  std::vector<std::string> missing_;
  std::set<std::string> used_;
};

}  // namespace

const StoredTensor* find_stored(const Plan& plan, const Checkpoint& checkpoint, const WeightSlot& slot) {
  if (checkpoint.is_gguf()) return slot.gguf.empty() ? nullptr : checkpoint.find(slot.gguf);
  if (const StoredTensor* same = checkpoint.find(slot.name)) return same;
  for (const auto& [native, disk] : plan.spellings)
    if (slot.name.starts_with(native))
      if (const StoredTensor* found = checkpoint.find(disk + slot.name.substr(native.size()))) return found;
  return nullptr;
}

Weights Weights::bind(const Plan& plan, const Checkpoint& checkpoint, at::ScalarType dtype, const at::Device& device,
                      Storage storage) {
  c10::InferenceMode no_inference(false);  // weights outlive a caller's mode
  Weights weights;
  weights.dtype_ = dtype;
  weights.device_ = device;
  Binder binder(plan, checkpoint, dtype, device, storage);
  const std::vector<ops::Weight> bound = binder.bind();
  for (size_t i = 0; i < bound.size(); ++i) {
    const auto owner = plan.weights[i].tied_to;
    weights.held_.push_back(owner ? weights.held_[static_cast<size_t>(*owner)] : std::make_shared<Held>());
    weights.held_.back()->weight = bound[i];
  }
  weights.read_ahead_ = ReadAhead::make(plan, binder.mapped_ranges(bound), memory_to_fill());
  return weights;
}

ops::Weight Weights::stored(WeightId id) const {
  Held& held = *held_[static_cast<size_t>(id)];
  std::lock_guard alone(held.mutex);
  held.take_back();
  return held.lent.defined() ? ops::Weight{held.lent, std::nullopt} : held.weight;
}

at::Tensor Weights::at(WeightId id) const {
  Held& held = *held_[static_cast<size_t>(id)];
  std::lock_guard alone(held.mutex);
  if (!held.weight.blocks && held.weight.numbers.scalar_type() == dtype_) return held.weight.numbers;
  c10::InferenceMode no_inference(false);  // whoever asks first, others may train it
  if (!held.lent.defined()) held.lent = held.weight.as(dtype_);
  return held.lent;
}

namespace {

/// Whether anyone but one holder of ours has it. Python's object for a tensor counts as one, and is not freed before
/// it.
template <class Impl>
bool is_shared(Impl& target) {
  const bool only_kept = target.pyobj_slot()->has_unique_reference();
  return c10::raw::intrusive_ptr::use_count(&target) > (only_kept ? 2 : 1);
}

}  // namespace

/// A changed copy stands for the weight from here on; one that nobody can have changed any more goes. Numbers are
/// compared, since what writes through `.data` or numpy leaves no other trace.
void Weights::Held::take_back() {
  if (!lent.defined() || is_shared(*lent.unsafeGetTensorImpl()) || is_shared(*lent.storage().unsafeGetStorageImpl()))
    return;
  if (lent.requires_grad() || !same_numbers(weight, lent)) weight = {lent, std::nullopt};
  lent.reset();
}

Weights Weights::shapes(const Plan& plan, at::ScalarType dtype) {
  Weights weights;
  weights.dtype_ = dtype;
  weights.device_ = at::kMeta;
  for (const WeightSlot& slot : plan.weights) {
    weights.held_.push_back(std::make_shared<Held>());
    weights.held_.back()->weight.numbers = at::empty(slot.shape, at::TensorOptions().device(at::kMeta).dtype(dtype));
  }
  return weights;
}

}  // namespace v0
}  // namespace gemloupe
