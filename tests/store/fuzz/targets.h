// One function for each reader of files that nobody vouches for: whatever the bytes, it returns. An Error is an answer;
// a crash, another exception, a sanitizer's report is a bug. The test suite runs them on mutations of small files;
// libFuzzer, as the CMakeLists.txt beside this says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/dequantize.h"
#include "gemloupe/store/gguf.h"
#include "gemloupe/store/npz.h"
#include "gemloupe/store/safetensors.h"
#include "gemloupe/store/tensor_bytes.h"

namespace store_fuzz {

using namespace gemloupe;

/// Reads every byte of every tensor, so that a sanitizer sees a view that leaves its file.
inline void touch(const std::vector<StoredTensor>& tensors) {
  volatile unsigned sum = 0;
  for (const StoredTensor& tensor : tensors) {
    for (size_t i = 0; i < tensor.bytes; ++i) sum = sum + static_cast<unsigned>(tensor.data[i]);
    const auto elements = element_count(tensor.shape);
    if (!elements || *elements > 65536 || !(is_quantised(tensor.dtype) || is_floating(tensor.dtype))) continue;
    std::vector<float> floats(static_cast<size_t>(*elements));
    dequantize(tensor, floats.data());
  }
}

template <class Read>
void run(const uint8_t* data, size_t size, Read read) {
  std::vector<std::byte> bytes(size);
  if (size) std::memcpy(bytes.data(), data, size);
  try {
    read(MappedFile::from_bytes("fuzz", std::move(bytes)));
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
  }
}

inline void safetensors(const uint8_t* data, size_t size) {
  run(data, size, [](const auto& file) { touch(parse_safetensors(file).tensors); });
}

inline void gguf(const uint8_t* data, size_t size) {
  run(data, size, [](const auto& file) { touch(parse_gguf(file).tensors); });
}

inline void npz(const uint8_t* data, size_t size) {
  run(data, size, [](const auto& file) { touch(parse_npz(file).arrays); });
}

}  // namespace store_fuzz
