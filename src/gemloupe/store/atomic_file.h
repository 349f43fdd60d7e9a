// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace gemloupe {
inline namespace v0 {

/// A file under a temporary name in the target's folder, renamed to the target by `commit()`. Without a commit (an
/// exception, a signal) the temporary file is removed and the target is what it was. A target that is a device or a
/// pipe is written directly. Errors: CannotWrite.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  size_t written() const { return written_; }

  /// Flushes to the disk and gives the file its name. Nothing can be written afterwards.
  void commit();

 private:
  void open_temporary();
  void flush();
  void write_through(const char* data, size_t bytes);
  void discard() noexcept;
  [[noreturn]] void fail(const char* what);

  std::filesystem::path asked_, target_;  // as given, and with links followed
  std::string temporary_;                 // empty where the target is written directly
  std::string buffer_;
  int fd_ = -1;
  int slot_ = -1;
  size_t written_ = 0;
};

/// `text` as the whole content of `target`.
void write_file(const std::filesystem::path& target, std::string_view text);

/// Removes the temporary files of all AtomicFiles that are open. Async-signal-safe: for a SIGINT handler that ends the
/// process.
void remove_unfinished_files() noexcept;

}  // namespace v0
}  // namespace gemloupe
