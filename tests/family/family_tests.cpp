#include <doctest/doctest.h>

#include <set>

#include "gemloupe/base/errors.h"
#include "gemloupe/family/family.h"
#include "store/files.h"

using namespace gemloupe;

TEST_CASE("families: each is found by its names") {
  std::set<std::string> names, architectures;
  CHECK(!families().empty());
  for (const Family* family : families()) {
    CAPTURE(family->model_type);
    CHECK(names.insert(family->model_type).second);
    CHECK(&find_family(family->model_type, "config.json") == family);
    CHECK(bool(family->read_config));
    CHECK(bool(family->recipe));
    if (family->gguf_architecture.empty()) continue;
    CHECK(architectures.insert(family->gguf_architecture).second);
    CHECK(&find_gguf_family(family->gguf_architecture, "m.gguf") == family);
    CHECK(bool(family->config_from_gguf));
  }
}

TEST_CASE("families: one that is not there is refused with those that are") {
  CHECK_REFUSED(BadConfig, find_family("llama", "dir/config.json"), "dir/config.json", "'llama'", "'gemma3_text'");
  CHECK_REFUSED(BadConfig, find_family("", "dir/config.json"), "''");
  CHECK_REFUSED(BadConfig, find_gguf_family("llama", "m.gguf"), "m.gguf", "'llama'", "'gemma3'");
  CHECK_REFUSED(BadConfig, find_gguf_family("", "m.gguf"), "''");
}
