#include "gemloupe/store/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <system_error>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/interrupt.h"

namespace gemloupe {
inline namespace v0 {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBuffer = size_t{1} << 18;

/// The paths that a signal handler may have to remove: storage that is never freed, so that a handler can read it at
/// any time.
struct Unfinished {
  enum State { Free, Taken, Armed };
  std::atomic<int> state{Free};
  std::array<char, PATH_MAX> path{};
};
std::array<Unfinished, 16> unfinished;

/// -1 where all slots are taken or the path is too long: the file is written all the same, only a signal may leave it
/// behind.
int arm(const std::string& path) {
  if (path.size() >= PATH_MAX) return -1;
  for (size_t i = 0; i < unfinished.size(); ++i) {
    int expected = Unfinished::Free;
    if (!unfinished[i].state.compare_exchange_strong(expected, Unfinished::Taken)) continue;
    std::memcpy(unfinished[i].path.data(), path.c_str(), path.size() + 1);
    unfinished[i].state = Unfinished::Armed;
    return static_cast<int>(i);
  }
  return -1;
}

void disarm(int& slot) {
  if (slot >= 0) unfinished[static_cast<size_t>(slot)].state = Unfinished::Free;
  slot = -1;
}

fs::path follow_links(const fs::path& target) {
  std::error_code error;
  if (!fs::is_symlink(target, error)) return target;
  fs::path real = fs::weakly_canonical(target, error);
  return error ? target : real;
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& target) : asked_(target), target_(follow_links(target)) {
  struct stat status {};
  const bool exists = ::stat(target_.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode))
    throw CannotWrite(asked_.string() + ": cannot be written: it is a folder; give a file name");
  if (exists && !S_ISREG(status.st_mode)) {
    fd_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0) fail("opened");
  } else {
    open_temporary();
    if (exists) (void)::fchmod(fd_, status.st_mode & 07777);  // the new content keeps the file's permissions
  }
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::open_temporary() {
  static std::atomic<unsigned> counter{0};
  const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  std::error_code error;
  if (target_.filename().empty() || !fs::is_directory(folder, error))
    throw CannotWrite(asked_.string() + ": cannot be written: the folder '" + folder.string() +
                      "' does not exist; create it first");
  do {
    const std::string name = ".gemloupe-" + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".tmp";
    temporary_ = (folder / name).string();
    slot_ = arm(temporary_);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0) disarm(slot_);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) {
    temporary_.clear();  // not ours to remove
    fail("created");
  }
}

void AtomicFile::write(const void* data, size_t bytes) {
  check(fd_ >= 0, "an AtomicFile is written after its commit");
  written_ += bytes;
  if (buffer_.size() + bytes > kBuffer) flush();
  if (bytes > kBuffer)
    write_through(static_cast<const char*>(data), bytes);
  else
    buffer_.append(static_cast<const char*>(data), bytes);
}

void AtomicFile::flush() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::write_through(const char* data, size_t bytes) {
  constexpr size_t kStep = size_t{1} << 24;  // between two of them, Ctrl-C is heard
  while (bytes > 0) {
    throw_if_interrupted();
    const ssize_t done = ::write(fd_, data, std::min(bytes, kStep));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("written");
    data += done;
    bytes -= static_cast<size_t>(done);
  }
}

void AtomicFile::commit() {
  flush();
  if (!temporary_.empty() && ::fsync(fd_) != 0) fail("flushed to the disk");
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) fail("closed");
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("put in place");
  temporary_.clear();
  disarm(slot_);
}

void AtomicFile::discard() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
  disarm(slot_);
}

void AtomicFile::fail(const char* what) {
  const std::string reason = std::generic_category().message(errno);
  discard();
  throw CannotWrite(asked_.string() + ": cannot be " + what + ": " + reason +
                    "; nothing was left half-written, check the free space and the permissions");
}

void write_file(const fs::path& target, std::string_view text) {
  AtomicFile file(target);
  file.write(text);
  file.commit();
}

void remove_unfinished_files() noexcept {
  for (Unfinished& file : unfinished)
    if (file.state == Unfinished::Armed) ::unlink(file.path.data());
}

}  // namespace v0
}  // namespace gemloupe
