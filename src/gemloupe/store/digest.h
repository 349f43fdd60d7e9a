// A short name for a model's content. Only checkpoint.cpp includes this.
#pragma once

#include <string>
#include <vector>

#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

/// 32 hex digits over the config (or GGUF metadata), the tensor table, and samples of every tensor: milliseconds, and
/// the same however the tensors are spread over files.
std::string digest_of(const json& config, const json& gguf_metadata, const std::vector<StoredTensor>& tensors);

}  // namespace v0
}  // namespace gemloupe
