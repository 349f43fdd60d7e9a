#include "gemloupe/store/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <memory>

namespace gemloupe {
inline namespace v0 {
namespace {

class Hash {
 public:
  Hash() : state_(XXH3_createState(), XXH3_freeState) { XXH3_128bits_reset(state_.get()); }

  void add(const void* data, size_t bytes) { XXH3_128bits_update(state_.get(), data, bytes); }
  void add(uint64_t number) { add(&number, sizeof(number)); }

  void add(std::string_view text) {
    add(text.size());
    add(text.data(), text.size());
  }

  std::string hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    char text[33];
    std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    return text;
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

void add_samples(Hash& hash, const StoredTensor& tensor) {
  constexpr size_t kSamples = 4, kBytes = 64;
  if (tensor.bytes <= kSamples * kBytes) return hash.add(tensor.data, tensor.bytes);
  for (size_t i = 0; i < kSamples; ++i) hash.add(tensor.data + (tensor.bytes - kBytes) / (kSamples - 1) * i, kBytes);
}

}  // namespace

std::string digest_of(const json& config, const json& gguf_metadata, const std::vector<StoredTensor>& tensors) {
  Hash hash;
  hash.add(config.dump());
  hash.add(gguf_metadata.dump());
  for (const StoredTensor& tensor : tensors) {
    hash.add(tensor.name);
    hash.add(traits(tensor.dtype).name);
    hash.add(tensor.shape.size());
    hash.add(tensor.shape.data(), tensor.shape.size() * sizeof(int64_t));
    add_samples(hash, tensor);
  }
  return hash.hex();
}

}  // namespace v0
}  // namespace gemloupe
