// What a trace read: as files, and in short.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "gemloupe/report/document.h"

namespace gemloupe::cli {

struct Saved {
  std::string name;
  at::Tensor tensor;
};

/// Before anything runs. Errors: BadOption for an ending that is none of ours, CannotWrite.
void check_target(const std::string& target);

/// x.safetensors, x.npz or a folder of .npy files with a metadata.json. A folder that is new appears whole or not at
/// all. Errors: CannotWrite.
void save(const std::string& target, const std::vector<Saved>& values, const json& origin);

/// Shape, dtype, mean, standard deviation, least and greatest of each.
Document summary(const std::vector<Saved>& values);
json summary_json(const std::vector<Saved>& values, const json& origin);

}  // namespace gemloupe::cli
