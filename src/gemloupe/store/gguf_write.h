// Writes a GGUF file, version 3, little-endian: what it says first, then its tensors' elements as they come. gguf.h
// reads it back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "gemloupe/store/atomic_file.h"
#include "gemloupe/store/gguf.h"

namespace gemloupe {
inline namespace v0 {

class GgufWriter {
 public:
  /// Opens the file and writes all of `contents` but the tensors' elements: their `data` is not looked at, and the file
  /// has them in the order given. Of metadata, integers are written as uint32 where they are not negative and fit, else
  /// as int32 or 64 bits wide; other numbers as float32, as llama.cpp has hyperparameters; arrays hold one kind.
  /// Errors: CannotWrite.
  GgufWriter(const std::filesystem::path& path, const GgufFile& contents);

  /// The next bytes of the elements, of one tensor at a time. Errors: CannotWrite.
  void write(const void* data, size_t bytes);

  /// Gives the file its name. Without it nothing is left behind. Errors: CannotWrite.
  void commit();

  size_t written() const { return file_.written(); }

 private:
  void pad();
  void finish_tensors();

  AtomicFile file_;
  std::vector<uint64_t> sizes_;  // by tensor
  size_t tensor_ = 0;
  uint64_t left_ = 0;  // of the current tensor
};

}  // namespace v0
}  // namespace gemloupe
