// Named numpy arrays in one zip archive, as numpy.savez writes and numpy.load reads them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gemloupe/store/array_to_write.h"
#include "gemloupe/store/checkpoint.h"
#include "gemloupe/store/mapped_file.h"

namespace gemloupe {
inline namespace v0 {

struct NpzFile {
  std::vector<StoredTensor> arrays;             ///< by name; stored ones are views of the mapped file
  std::map<std::string, std::string> metadata;  ///< what write_npz() was given
};

/// Stored and deflated archives; every checksum is verified. Errors: NotFound, BadCheckpoint.
NpzFile read_npz(const std::filesystem::path& path);
NpzFile parse_npz(const std::shared_ptr<MappedFile>& file);

/// Writes all or nothing. `metadata`, unless it is empty, goes into an array of bytes called `__metadata__`: JSON text,
/// for Python's json.loads(bytes(npz["__metadata__"])). Members from `zip64_from` bytes on get the 64-bit fields.
/// Errors: CannotWrite.
void write_npz(const std::filesystem::path& path, std::span<const ArrayToWrite> arrays,
               const std::map<std::string, std::string>& metadata = {}, uint64_t zip64_from = 0xFFFFFFFF);

}  // namespace v0
}  // namespace gemloupe
