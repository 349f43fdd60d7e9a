#include <stdexcept>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/interrupt.h"
#include "gemloupe/store/atomic_file.h"
#include "store/files.h"

using namespace gemloupe;
using namespace store_tests;

TEST_CASE("an atomic file appears on commit, whole") {
  TempFolder folder;
  const fs::path path = folder.path() / "out.txt";
  {
    AtomicFile file(path);
    file.write("abc");
    file.write(std::string(1 << 20, 'x'));
    file.write("def");
    CHECK(file.written() == (1 << 20) + 6);
    CHECK(!fs::exists(path));
    file.commit();
  }
  CHECK(content(path) == "abc" + std::string(1 << 20, 'x') + "def");
  CHECK(folder.count() == 1);
}

TEST_CASE("without a commit the target stays what it was and nothing is left behind") {
  TempFolder folder;
  const fs::path path = folder.add("out.txt", "old");
  try {
    AtomicFile file(path);
    file.write(std::string(1 << 20, 'x'));
    CHECK(folder.count() == 2);
    throw std::runtime_error("something went wrong");
  } catch (const std::runtime_error&) {
  }
  CHECK(content(path) == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("Ctrl-C while a file is written leaves the old one") {
  TempFolder folder;
  const fs::path path = folder.add("out.txt", "old");
  request_interrupt();
  CHECK_THROWS_AS(write_file(path, std::string(1 << 20, 'x')), Interrupted);
  CHECK(content(path) == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("a replaced file keeps its permissions, and a link its target") {
  TempFolder folder;
  const fs::path path = folder.add("real.txt", "old"), link = folder.path() / "link.txt";
  fs::permissions(path, fs::perms(0640));
  fs::create_symlink("real.txt", link);
  write_file(link, "new");
  CHECK(content(path) == "new");
  CHECK(fs::is_symlink(link));
  CHECK(fs::status(path).permissions() == fs::perms(0640));
}

TEST_CASE("a device is written directly") {
  CHECK_NOTHROW(write_file("/dev/null", "abc"));
}

TEST_CASE("what cannot be written is refused by name") {
  TempFolder folder;
  CHECK_REFUSED(CannotWrite, write_file(folder.path() / "no" / "out.txt", ""), "no/out.txt", "does not exist",
                "create it");
  CHECK_REFUSED(CannotWrite, write_file(folder.path(), ""), folder.path().c_str(), "it is a folder");
  CHECK_REFUSED(CannotWrite, write_file("/dev/full", "abc"), "/dev/full", "cannot be written", "free space");
  CHECK_REFUSED(CannotWrite, write_file("/proc/out.txt", "abc"), "/proc/out.txt", "cannot be created");
}

TEST_CASE("a signal handler can remove the temporary files of everything unfinished") {
  TempFolder folder;
  AtomicFile one(folder.path() / "one"), two(folder.path() / "two");
  AtomicFile done(folder.path() / "done");
  done.commit();
  CHECK(folder.count() == 3);
  remove_unfinished_files();
  CHECK(folder.count() == 1);
  CHECK_REFUSED(CannotWrite, one.commit(), "one", "cannot be put in place");
}

TEST_CASE("more files than the signal handler's slots can be open") {
  TempFolder folder;
  std::vector<std::unique_ptr<AtomicFile>> files;
  for (int i = 0; i < 40; ++i) files.push_back(std::make_unique<AtomicFile>(folder.path() / std::to_string(i)));
  for (auto& file : files) file->commit();
  CHECK(folder.count() == 40);
}
