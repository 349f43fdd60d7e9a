// A whole file in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace gemloupe {
inline namespace v0 {

/// The file's pages, private and copy-on-write: what is written through `data` stays in this process, the file never
/// changes. Its size is the one it had when it was opened; every reader checks what it takes against that.
class MappedFile {
 public:
  enum class Advice { Normal, Sequential, Random, WillNeed };

  /// Errors: NotFound where there is no such file, BadCheckpoint where it cannot be read.
  static std::shared_ptr<MappedFile> open(const std::filesystem::path& path);

  /// The same for bytes that lie in memory already; `path` is for messages.
  static std::shared_ptr<MappedFile> from_bytes(const std::filesystem::path& path, std::vector<std::byte> bytes);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::byte* data() const { return data_; }  ///< null for an empty file
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  /// How the pages are going to be read. Only a hint: nothing fails.
  void advise(Advice advice) const noexcept;

 private:
  explicit MappedFile(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::vector<std::byte> owned_;  // from_bytes' bytes; empty for a map
};

}  // namespace v0
}  // namespace gemloupe
