// Hyperparameters, strictly parsed: every key has a meaning here or is ignored by name, the reference's class defaults
// are filled in, and the attributes are normalised as the reference normalises them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

/// Normalised attributes, as `model.config.X` gives them. Typed access refuses what has another type (BadConfig).
class Config {
 public:
  Config() = default;
  explicit Config(json attributes) : attributes_(std::move(attributes)) {}

  const json& attributes() const { return attributes_; }
  json& attributes() { return attributes_; }
  int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  bool flag(const std::string& key) const;  ///< null is false
  std::string text(const std::string& key) const;
  std::optional<int64_t> optional_integer(const std::string& key) const;
  std::optional<double> optional_number(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;

  std::vector<std::string> warnings;  ///< of what was read in another way than it was written

 private:
  const json& at(const std::string& key) const;
  json attributes_ = json::object();
};

/// What a key may hold.
enum class KeyType : uint8_t { Size, Integer, Number, Flag, Text, Texts, Object, Any };

struct ConfigKey {
  std::string name;
  KeyType type;
  json standard;          ///< the reference's class default
  bool nullable = false;  ///< may be null in a file
};

/// One family's keys. `read_config` fills in defaults, refuses unknown keys and wrong types; the family normalises the
/// rest.
struct ConfigSchema {
  std::string model_type;
  std::vector<ConfigKey> keys;
  std::vector<std::string> legacy;  ///< older spellings: the family reads them from the raw JSON, they are not kept
  std::vector<std::string> unread = {};  ///< keys of released files that the config class does not read; kept, as there
};

/// `where` names the file in messages. `ignore` are keys that the user asked to be ignored. Errors: BadConfig.
Config read_config(const ConfigSchema& schema, const json& raw, const std::string& where,
                   const std::vector<std::string>& ignore);

}  // namespace v0
}  // namespace gemloupe
