#include "gemloupe/family/family.h"

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {

#define GEMLOUPE_FAMILY(name) extern const Family name##_family;
#include "gemloupe/family/families.inc"
#undef GEMLOUPE_FAMILY

std::span<const Family* const> families() {
  static const Family* const all[] = {
#define GEMLOUPE_FAMILY(name) &name##_family,
#include "gemloupe/family/families.inc"
#undef GEMLOUPE_FAMILY
  };
  return all;
}

const Family& find_family(const std::string& model_type, const std::string& where) {
  std::vector<std::string> known;
  for (const Family* family : families()) {
    if (family->model_type == model_type) return *family;
    known.push_back(family->model_type);
  }
  throw BadConfig(where + ": model_type '" + model_type + "' is no family that gemloupe has; it has " +
                  quoted_list(known, " and ") + ".");
}

const Family& find_gguf_family(const std::string& architecture, const std::string& where) {
  std::vector<std::string> known;
  for (const Family* family : families()) {
    if (!family->gguf_architecture.empty() && family->gguf_architecture == architecture) return *family;
    if (!family->gguf_architecture.empty()) known.push_back(family->gguf_architecture);
  }
  throw BadConfig(where + ": general.architecture '" + architecture + "' is no family that gemloupe has; it has " +
                  quoted_list(known, " and ") + ".");
}

}  // namespace v0
}  // namespace gemloupe
