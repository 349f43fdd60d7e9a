// A checkpoint as one GGUF file, its matrices quantised.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gemloupe {
inline namespace v0 {

struct QuantizeOptions {
  std::string type = "q8_0";            ///< of matrices: "q8_0", "bf16", "f16" or "f32"; vectors are float32
  std::optional<std::string> revision;  ///< of a hub id
  std::vector<std::string> ignore_config_keys;
  /// Called as tensors are written: how many, of how many.
  std::function<void(int64_t done, int64_t of)> on_tensor;
};

struct Quantized {
  int64_t tensors = 0;
  uint64_t bytes = 0;              ///< of the file
  std::vector<std::string> notes;  ///< what is not in the file, or not in the type that was asked for
};

/// Writes the text model of a checkpoint as Model::load takes it, with its vocabulary and chat template, to a .gguf
/// file, which appears whole or not at all. Tensors go through memory one part after another. A config that means
/// something that a GGUF file cannot say is refused. Errors: as Model::load; BadConfig, BadOption, BadTokenizer,
/// CannotWrite.
Quantized quantize(const std::string& path_or_id, const std::filesystem::path& to, const QuantizeOptions& options = {});

}  // namespace v0
}  // namespace gemloupe
