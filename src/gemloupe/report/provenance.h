// What every file that gemloupe writes says of where it comes from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

struct Provenance {
  std::string schema;  ///< "gemloupe.trace/1": what the file is; the number changes when its form does
  std::string digest;  ///< Checkpoint::digest()
  std::string dtype, attn_implementation;
  std::vector<int64_t> prompt_ids;
  json seed;  ///< null where nothing was random
};

/// With gemloupe's and torch's versions and the number of threads.
json to_json(const Provenance& provenance);
/// The same for metadata that holds texts only: what is no text is JSON.
std::map<std::string, std::string> to_metadata(const Provenance& provenance);

/// The version of the libtorch that is loaded.
std::string torch_version();

}  // namespace v0
}  // namespace gemloupe
