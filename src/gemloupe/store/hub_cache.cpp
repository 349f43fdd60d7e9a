#include "gemloupe/store/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/store/printable.h"

namespace gemloupe {
inline namespace v0 {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--", kSeparator = "--";

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

bool is_id_part(std::string_view part) {
  return !part.empty() && part.front() != '.' && part.front() != '-' && part.find("--") == std::string_view::npos &&
         part.find("..") == std::string_view::npos &&
         std::all_of(part.begin(), part.end(), [](char c) { return is_name_character(c) || c == '-' || c == '.'; });
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

/// The commit that a branch or tag stands for; none where the cache knows no such ref.
std::optional<std::string> read_ref(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  std::ifstream in(file);
  std::string commit;
  in >> commit;
  return is_id_part(commit) ? std::optional(commit) : std::nullopt;
}

/// One model's folder in the cache.
class CachedModel {
 public:
  CachedModel(std::string id, std::string revision, fs::path folder)
      : id_(std::move(id)), revision_(std::move(revision)), folder_(std::move(folder)) {}

  fs::path snapshot() const {
    if (!is_folder(folder_)) missing("there is no folder " + folder_.string() + near_ids());
    for (const std::string& part : split(revision_, '/'))
      if (part.empty() || part == "." || part == "..") missing(in_quotes(revision_) + " is no revision");
    const fs::path ref = folder_ / "refs" / revision_;
    if (const auto commit = read_ref(ref)) {
      const fs::path snapshot = folder_ / "snapshots" / *commit;
      if (is_folder(snapshot)) return snapshot;
      missing(ref.string() + " names commit " + *commit + ", but there is no folder " + snapshot.string());
    }
    return folder_ / "snapshots" / commit_that_begins_so();
  }

 private:
  std::string commit_that_begins_so() const {
    const std::vector<std::string> commits = names_in(folder_ / "snapshots");
    if (std::find(commits.begin(), commits.end(), revision_) != commits.end()) return revision_;
    std::vector<std::string> matching;
    for (const std::string& commit : commits)
      if (revision_.size() >= 4 && commit.starts_with(revision_)) matching.push_back(commit);
    if (matching.size() == 1) return matching[0];
    if (matching.size() > 1)
      missing(in_quotes(revision_) + " begins several commits: " + quoted_list(matching, " and "));
    missing("there is no " + (folder_ / "refs" / revision_).string() + ", and no commit of that name in " +
            (folder_ / "snapshots").string() +
            (commits.empty() ? "" : " (it has " + quoted_list(commits, " and ") + ": pass one as revision)"));
  }

  static std::string near_ids() {
    const std::vector<std::string> ids = hub_cache_ids();
    if (ids.empty()) return " (the cache holds no model)";
    return " (the cache holds " +
           quoted_list({ids.begin(), ids.begin() + std::min<ptrdiff_t>(8, std::ssize(ids))}, " and ") + ")";
  }

  [[noreturn]] void missing(const std::string& why) const {
    const std::string option = revision_ == "main" ? "" : " --revision " + printable(revision_);
    throw NotFound(in_quotes(id_) + (option.empty() ? "" : ", revision " + in_quotes(revision_) + ",") +
                   " is no file or folder here, and not in the hub cache: " + why + ". Get it with `hf download " +
                   printable(id_) + option + "`, or pass a folder; HF_HUB_CACHE or HF_HOME name another cache");
  }

  std::string id_, revision_;
  fs::path folder_;
};

}  // namespace

bool is_hub_id(std::string_view text) {
  const std::vector<std::string> parts = split(text, '/');
  return parts.size() <= 2 && text.size() <= 96 && std::all_of(parts.begin(), parts.end(), is_id_part);
}

fs::path expand_path(std::string_view text) {
  std::string out;
  if (text == "~" || text.starts_with("~/")) {
    if (const char* home = variable("HOME")) {
      out = home;
      text.remove_prefix(1);
    }
  }
  while (!text.empty()) {
    const bool braces = text.starts_with("${");
    size_t end = braces ? 2 : 1;
    if (text[0] == '$')
      while (end < text.size() && is_name_character(text[end])) ++end;
    const std::string name(text.substr(braces ? 2 : 1, end - (braces ? 2 : 1)));
    if (braces && end < text.size() && text[end] == '}') ++end;
    const char* value = name.empty() || (braces && text[end - 1] != '}') ? nullptr : std::getenv(name.c_str());
    out += value ? std::string_view(value) : text.substr(0, end);
    text.remove_prefix(end);
  }
  return out;
}

fs::path hub_cache_folder() {
  if (const char* cache = variable("HF_HUB_CACHE")) return expand_path(cache);
  if (const char* cache = variable("HUGGINGFACE_HUB_CACHE")) return expand_path(cache);  // its older name
  if (const char* home = variable("HF_HOME")) return expand_path(home) / "hub";
  if (const char* caches = variable("XDG_CACHE_HOME")) return expand_path(caches) / "huggingface" / "hub";
  return expand_path("~/.cache/huggingface/hub");
}

std::vector<std::string> hub_cache_ids() {
  std::vector<std::string> ids;
  for (std::string name : names_in(hub_cache_folder())) {
    if (!name.starts_with(kPrefix)) continue;
    name.erase(0, kPrefix.size());
    if (const size_t at = name.find(kSeparator); at != std::string::npos) name.replace(at, kSeparator.size(), "/");
    ids.push_back(std::move(name));
  }
  return ids;
}

fs::path find_in_hub_cache(const std::string& id, const std::optional<std::string>& revision) {
  std::string folder(kPrefix);
  folder += join(split(id, '/'), kSeparator);
  return CachedModel(id, revision.value_or("main"), hub_cache_folder() / folder).snapshot();
}

}  // namespace v0
}  // namespace gemloupe
