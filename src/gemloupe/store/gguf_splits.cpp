// A GGUF model that was cut into files, name-00001-of-00003.gguf and so on: the first has the metadata, each has
// tensors.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/gguf.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/store/tensor_bytes.h"

namespace gemloupe {
inline namespace v0 {
namespace {

namespace fs = std::filesystem;

struct SplitName {
  std::string prefix;
  int number = 0, count = 0;

  std::string of(int other) const {
    char suffix[32];
    std::snprintf(suffix, sizeof(suffix), "-%05d-of-%05d.gguf", other, count);
    return prefix + suffix;
  }
};

std::optional<SplitName> split_name(const fs::path& path) {
  constexpr size_t kSuffix = std::string_view("-00001-of-00003.gguf").size();
  const std::string name = path.filename().string();
  if (name.size() < kSuffix) return std::nullopt;
  SplitName out{name.substr(0, name.size() - kSuffix)};
  const char* suffix = name.c_str() + name.size() - kSuffix;
  const bool parsed = std::sscanf(suffix, "-%5d-of-%5d.gguf", &out.number, &out.count) == 2;
  return parsed && out.of(out.number) == name ? std::optional(out) : std::nullopt;
}

std::optional<int64_t> number_in(const json& metadata, const char* key) {
  const auto at = metadata.find(key);
  return at != metadata.end() && at->is_number_integer() ? std::optional(at->get<int64_t>()) : std::nullopt;
}

GgufFile parse_split(const fs::path& path, const SplitName& name, int number) {
  const fs::path file = path.parent_path() / name.of(number);
  std::error_code error;
  if (!fs::exists(file, error))
    throw BadCheckpoint(path.string() + ": is one of " + std::to_string(name.count) + " files, and " +
                        in_quotes(name.of(number)) + " is missing; download all of them into one folder");
  return parse_gguf(MappedFile::open(file));
}

void refuse_incomplete(const GgufFile& whole, const fs::path& path) {
  const auto& tensors = whole.tensors;
  const auto twin =
      std::adjacent_find(tensors.begin(), tensors.end(), [](auto& a, auto& b) { return a.name == b.name; });
  if (twin != tensors.end())
    throw BadCheckpoint(path.string() + ": tensor " + in_quotes(twin->name) + " is in two files, " +
                        in_quotes(twin->path.filename().string()) + " and " +
                        in_quotes(std::next(twin)->path.filename().string()) + "; download them again");
  const auto expected = number_in(whole.metadata, "split.tensors.count");
  if (expected && *expected != std::ssize(tensors))
    throw BadCheckpoint(path.string() + ": its files hold " + std::to_string(tensors.size()) + " tensors, expected " +
                        std::to_string(*expected) + "; download them again");
}

}  // namespace

bool is_later_gguf_split(const fs::path& path) {
  const auto name = split_name(path);
  return name && name->number > 1;
}

GgufFile read_gguf(const fs::path& path) {
  GgufFile given = parse_gguf(MappedFile::open(path));
  const int64_t count = number_in(given.metadata, "split.count").value_or(1);
  if (count <= 1) return given;
  const auto name = split_name(path);
  if (!name || name->count != count || name->number < 1 || name->number > count)
    throw BadCheckpoint(path.string() + ": is one of " + std::to_string(count) +
                        " files, whose names should end with -00001-of-0000N.gguf; give them their names back");
  GgufFile whole = name->number == 1 ? std::move(given) : parse_split(path, *name, 1);
  for (int number = 2; number <= name->count; ++number) {
    GgufFile part = parse_split(path, *name, number);
    std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(whole.tensors));
  }
  sort_by_name(whole.tensors);
  refuse_incomplete(whole, path);
  return whole;
}

}  // namespace v0
}  // namespace gemloupe
