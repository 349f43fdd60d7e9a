// Files for the tests: made up on the spot, or out of tests/data and tests/store/data.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gemloupe/store/mapped_file.h"

namespace store_tests {

namespace fs = std::filesystem;

/// A folder of its own, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (fs::temp_directory_path() / "gemloupe-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()));
    path_ = name;
  }
  ~TempFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const fs::path& path() const { return path_; }

  fs::path add(const fs::path& name, std::string_view content) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

  size_t count() const { return static_cast<size_t>(std::distance(fs::directory_iterator(path_), {})); }

 private:
  fs::path path_;
};

/// An environment variable for the length of a test; null unsets it.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = std::make_unique<std::string>(old);
    set(value);
  }
  ~Variable() { set(old_ ? old_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) { value ? ::setenv(name_, value, 1) : ::unsetenv(name_); }

  const char* name_;
  std::unique_ptr<std::string> old_;
};

inline std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The repository's tests/ folder: GEMLOUPE_TESTS names it, or it lies above this program.
inline fs::path tests_folder() {
  if (const char* folder = std::getenv("GEMLOUPE_TESTS")) return folder;
  fs::path at = fs::read_symlink("/proc/self/exe");
  while (at.has_relative_path() && !fs::exists(at / "tests" / "data" / "gguf")) at = at.parent_path();
  return at / "tests";
}

inline std::shared_ptr<gemloupe::MappedFile> in_memory(std::string_view bytes, const char* name = "memory") {
  std::vector<std::byte> copy(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return gemloupe::MappedFile::from_bytes(name, std::move(copy));
}

/// The number's bytes, as they lie in files.
template <class T>
std::string bytes_of(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof(T)};
}

template <class E, class Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const E& error) {
    return error.what();
  }
  FAIL_CHECK("nothing was refused");
  return {};
}

inline void check_message(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (std::string_view part : parts) CHECK_MESSAGE(message.find(part) != std::string::npos, message, " LACKS ", part);
}

/// `expression` throws `Error`, and its message has all the parts that follow.
#define CHECK_REFUSED(Error, expression, ...) \
  store_tests::check_message(store_tests::message_of<Error>([&] { (void)(expression); }), {__VA_ARGS__})

}  // namespace store_tests
