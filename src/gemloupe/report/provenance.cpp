#include "gemloupe/report/provenance.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include "gemloupe/version.h"

namespace gemloupe {
inline namespace v0 {

std::string torch_version() {
  std::string said = at::show_config();
  const std::string key = "TORCH_VERSION=";
  size_t from = said.find(key);
  if (from == std::string::npos) return "unknown";
  from += key.size();
  return said.substr(from, said.find_first_of(", \n", from) - from);
}

json to_json(const Provenance& provenance) {
  return {{"schema", provenance.schema},        {"gemloupe", kVersion},
          {"torch", torch_version()},           {"model", provenance.digest},
          {"dtype", provenance.dtype},          {"attn_implementation", provenance.attn_implementation},
          {"threads", at::get_num_threads()},   {"seed", provenance.seed},
          {"prompt_ids", provenance.prompt_ids}};
}

std::map<std::string, std::string> to_metadata(const Provenance& provenance) {
  std::map<std::string, std::string> metadata;
  const json all = to_json(provenance);
  for (const auto& [key, value] : all.items())
    metadata[key] = value.is_string() ? value.get<std::string>() : value.dump();
  return metadata;
}

}  // namespace v0
}  // namespace gemloupe
