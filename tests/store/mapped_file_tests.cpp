#include "gemloupe/base/errors.h"
#include "gemloupe/store/mapped_file.h"
#include "store/files.h"

using namespace gemloupe;
using namespace store_tests;

TEST_CASE("a mapped file can be read, and written without changing the file") {
  TempFolder folder;
  const fs::path path = folder.add("a", "hello");
  const auto file = MappedFile::open(path);
  CHECK(file->text() == "hello");
  CHECK(file->path() == path);
  file->advise(MappedFile::Advice::WillNeed);
  file->data()[0] = std::byte{'j'};
  CHECK(file->text() == "jello");
  CHECK(content(path) == "hello");
}

TEST_CASE("a read-only file can be mapped and written in memory") {
  TempFolder folder;
  const fs::path path = folder.add("a", "hello");
  fs::permissions(path, fs::perms::owner_read);
  const auto file = MappedFile::open(path);
  file->data()[0] = std::byte{'j'};
  CHECK(file->text() == "jello");
}

TEST_CASE("an empty file is mapped as no bytes") {
  TempFolder folder;
  const auto file = MappedFile::open(folder.add("empty", ""));
  CHECK(file->size() == 0);
  CHECK(file->text().empty());
  file->advise(MappedFile::Advice::Sequential);
}

TEST_CASE("what cannot be mapped is refused by name") {
  TempFolder folder;
  CHECK_REFUSED(NotFound, MappedFile::open(folder.path() / "nothing"), "nothing", "no such file");
  CHECK_REFUSED(NotFound, MappedFile::open(folder.add("a", "") / "b"), "a/b", "no such file");
  CHECK_REFUSED(BadCheckpoint, MappedFile::open(folder.path()), folder.path().c_str(), "expected a regular file",
                "a folder");
  CHECK_REFUSED(BadCheckpoint, MappedFile::open("/dev/null"), "/dev/null", "a device or pipe");
}
