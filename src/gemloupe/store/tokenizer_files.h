// The tokenizer's part of a checkpoint folder. Only checkpoint.cpp includes this.
#pragma once

#include <filesystem>

#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

TokenizerFiles find_tokenizer_files(const std::filesystem::path& folder);

}  // namespace v0
}  // namespace gemloupe
