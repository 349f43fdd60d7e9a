#include "gemloupe/base/errors.h"
#include "gemloupe/store/hub_cache.h"
#include "store/files.h"

using namespace gemloupe;
using namespace store_tests;

namespace {

const std::string kCommit(40, 'a'), kOther = "abcd" + std::string(36, 'b'), kThird = "abce" + std::string(36, 'c');

struct Cache {
  TempFolder folder;
  Variable cache{"HF_HUB_CACHE", folder.path().c_str()};
  fs::path model = folder.path() / "models--google--gemma-3-270m";

  Cache() {
    for (const std::string& commit : {kCommit, kOther, kThird})
      folder.add(model / "snapshots" / commit / "config.json", "{}");
    folder.add(model / "refs/main", kCommit);
    folder.add(model / "refs/refs/pr/1", kOther + "\n");
  }

  std::string snapshot(std::optional<std::string> revision) const {
    return find_in_hub_cache("google/gemma-3-270m", revision).filename();
  }
};

}  // namespace

TEST_CASE("hub cache: a revision is main, a branch, a tag, a commit or its beginning") {
  const Cache cache;
  CHECK(find_in_hub_cache("google/gemma-3-270m", std::nullopt) == cache.model / "snapshots" / kCommit);
  CHECK(cache.snapshot("main") == kCommit);
  CHECK(cache.snapshot("refs/pr/1") == kOther);
  CHECK(cache.snapshot(kThird) == kThird);
  CHECK(cache.snapshot("abce") == kThird);
  CHECK(hub_cache_ids() == std::vector<std::string>{"google/gemma-3-270m"});
}

TEST_CASE("hub cache: what is not there is refused with where it looked and how to get it") {
  const Cache cache;
  const std::string folder = cache.folder.path().string();
  CHECK_REFUSED(NotFound, find_in_hub_cache("google/gemma-9", std::nullopt), "'google/gemma-9'",
                folder + "/models--google--gemma-9", "'google/gemma-3-270m'", "hf download google/gemma-9`", "HF_HOME");
  CHECK_REFUSED(NotFound, cache.snapshot("dev"), "revision 'dev'", "refs/dev", folder, kCommit,
                "hf download google/gemma-3-270m --revision dev");
  CHECK_REFUSED(NotFound, cache.snapshot("abc"), "'abc'");
  CHECK_REFUSED(NotFound, cache.snapshot("abc" + std::string(1, 'd') + "x"), "refs/abcdx");
  for (const char* revision : {"../../x", "", "/etc", "a//b", "."})
    CHECK_REFUSED(NotFound, cache.snapshot(revision), "is no revision");
  fs::remove_all(cache.model / "snapshots" / kCommit);
  CHECK_REFUSED(NotFound, cache.snapshot("main"), "refs/main", "names commit " + kCommit, "no folder");
  cache.folder.add(cache.model / "snapshots" / ("abce" + std::string(36, 'd')) / "config.json", "{}");
  CHECK_REFUSED(NotFound, cache.snapshot("abce"), "begins several commits", kThird);
}

TEST_CASE("hub cache: an empty cache says so") {
  const TempFolder folder;
  const Variable cache("HF_HUB_CACHE", (folder.path() / "none").c_str());
  CHECK_REFUSED(NotFound, find_in_hub_cache("a/b", std::nullopt), "none/models--a--b", "holds no model");
}

TEST_CASE("hub cache: the folder follows huggingface_hub's variables") {
  const Variable home("HOME", "/home/me"), xdg("XDG_CACHE_HOME", nullptr), hf("HF_HOME", nullptr);
  const Variable old("HUGGINGFACE_HUB_CACHE", nullptr), cache("HF_HUB_CACHE", nullptr);
  CHECK(hub_cache_folder() == "/home/me/.cache/huggingface/hub");
  const Variable xdg2("XDG_CACHE_HOME", "/xdg");
  CHECK(hub_cache_folder() == "/xdg/huggingface/hub");
  const Variable hf2("HF_HOME", "~/hf");
  CHECK(hub_cache_folder() == "/home/me/hf/hub");
  const Variable old2("HUGGINGFACE_HUB_CACHE", "/old");
  CHECK(hub_cache_folder() == "/old");
  const Variable cache2("HF_HUB_CACHE", "$HF_HOME/${XDG_CACHE_HOME}/x");
  CHECK(hub_cache_folder() == "~/hf//xdg/x");
}

TEST_CASE("paths are expanded as a shell would") {
  const Variable home("HOME", "/home/me"), a("A_1", "x"), none("NONE", nullptr);
  for (auto [text, expected] : std::vector<std::pair<const char*, const char*>>{{"~", "/home/me"},
                                                                                {"~/m", "/home/me/m"},
                                                                                {"~me", "~me"},
                                                                                {"m~", "m~"},
                                                                                {"$A_1/$A_1", "x/x"},
                                                                                {"${A_1}b", "xb"},
                                                                                {"$NONE/b", "$NONE/b"},
                                                                                {"${NONE}b", "${NONE}b"},
                                                                                {"${A_1", "${A_1"},
                                                                                {"$", "$"},
                                                                                {"a$", "a$"},
                                                                                {"${}", "${}"},
                                                                                {"", ""}})
    CHECK(expand_path(text).string() == expected);
}

TEST_CASE("hub ids") {
  for (const char* id : {"google/gemma-3-270m", "gpt2", "a.b/c_d"}) CHECK(is_hub_id(id));
  for (const char* text : {"", "/", "a/", "/a", "a/b/c", "../a", "./a", "a/..", "a--b/c", "a b", "~/a", "a/.b"})
    CHECK(!is_hub_id(text));
}
