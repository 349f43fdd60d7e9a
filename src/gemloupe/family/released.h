// The released checkpoints' configs, which ship with the library: names, shapes and sizes without a download.
#pragma once

#include <string>
#include <vector>

#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

struct Released {
  std::string name;                  ///< "gemma-3-1b"
  std::vector<std::string> hub_ids;  ///< repositories whose model has this config
  json config;                       ///< as config.json
};

const std::vector<Released>& released();

/// By name or hub id; null where there is none.
const Released* find_released(const std::string& name_or_id);

/// Names like it, for messages; empty where none is near.
std::string near_released(const std::string& name_or_id);

}  // namespace v0
}  // namespace gemloupe
