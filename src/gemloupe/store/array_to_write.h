// An array on its way to a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gemloupe/base/dtype.h"

namespace gemloupe {
inline namespace v0 {

struct ArrayToWrite {
  std::string name;
  DType dtype{};
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;  ///< all elements, row by row; borrowed
};

}  // namespace v0
}  // namespace gemloupe
