#include "gemloupe/store/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void refuse(const std::filesystem::path& path, int error) {
  const std::string reason = std::generic_category().message(error);
  if (error == ENOENT || error == ENOTDIR) throw NotFound(path.string() + ": no such file");
  throw BadCheckpoint(path.string() + ": cannot be read: " + reason + "; check the file and its permissions");
}

}  // namespace

std::shared_ptr<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: a pipe of that name must not make us wait for a writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) refuse(path, errno);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) refuse(path, errno);
  if (!S_ISREG(status.st_mode))
    throw BadCheckpoint(path.string() + ": expected a regular file, found " +
                        (S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe"));
  std::shared_ptr<MappedFile> mapped(new MappedFile(path));
  if (status.st_size == 0) return mapped;  // mmap refuses a length of 0
  mapped->size_ = static_cast<size_t>(status.st_size);
  // MAP_NORESERVE: a checkpoint larger than memory may be mapped; only pages that are written need memory of their own.
  void* address = ::mmap(nullptr, mapped->size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.fd, 0);
  if (address == MAP_FAILED) refuse(path, errno);
  mapped->data_ = static_cast<std::byte*>(address);
  return mapped;
}

std::shared_ptr<MappedFile> MappedFile::from_bytes(const std::filesystem::path& path, std::vector<std::byte> bytes) {
  std::shared_ptr<MappedFile> held(new MappedFile(path));
  held->owned_ = std::move(bytes);
  held->data_ = held->owned_.empty() ? nullptr : held->owned_.data();
  held->size_ = held->owned_.size();
  return held;
}

MappedFile::~MappedFile() {
  if (data_ && owned_.empty()) ::munmap(data_, size_);
}

void MappedFile::advise(Advice advice) const noexcept {
  if (!data_ || !owned_.empty()) return;
  constexpr int kAdvice[] = {MADV_NORMAL, MADV_SEQUENTIAL, MADV_RANDOM, MADV_WILLNEED};
  ::madvise(data_, size_, kAdvice[static_cast<int>(advice)]);
}

}  // namespace v0
}  // namespace gemloupe
