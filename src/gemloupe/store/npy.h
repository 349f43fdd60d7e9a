// One numpy array in a file: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gemloupe/store/array_to_write.h"
#include "gemloupe/store/checkpoint.h"
#include "gemloupe/store/mapped_file.h"

namespace gemloupe {
inline namespace v0 {

/// float16, float32, float64, int8 to int64, uint8 and bool, little-endian; Fortran order is turned into C order. The
/// array is called after the file, without .npy. Errors: NotFound, BadCheckpoint.
StoredTensor read_npy(const std::filesystem::path& path);

/// Writes all or nothing, for numpy.load. numpy has no bfloat16: widen_bfloat16() it first. Errors: CannotWrite.
void write_npy(const std::filesystem::path& path, const ArrayToWrite& array);

/// The elements of a bfloat16 array as float32.
std::vector<float> widen_bfloat16(const ArrayToWrite& array);

/// The array that lies in bytes [begin, end) of `file`; `where` begins each message. What read_npy() and read_npz()
/// share.
StoredTensor parse_npy(const std::shared_ptr<MappedFile>& file, size_t begin, size_t end, std::string name,
                       const std::string& where);

/// What stands before the data of an array, made so long that the data is aligned when the header is written at
/// `offset`.
std::string npy_header(const ArrayToWrite& array, uint64_t offset, const std::string& where);

}  // namespace v0
}  // namespace gemloupe
