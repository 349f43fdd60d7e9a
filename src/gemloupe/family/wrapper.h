// What the multimodal families share: a text family inside `model.language_model`, towers beside it, one head at the
// root. A text prompt runs the text model alone.
#pragma once

#include <string>
#include <vector>

#include "gemloupe/family/text.h"
#include "gemloupe/family/tower.h"

namespace gemloupe {
inline namespace v0 {

// ------------------------------------------------------------------------------------------------------------- config

/// A config inside a multimodal one.
struct ConfigPart {
  std::string key;                       ///< "vision_config"
  std::vector<std::string> model_types;  ///< that it can hold; the first where it names none
  bool optional = false;                 ///< may be missing or null: the checkpoint has no such part
  std::vector<std::string> unread = {};  ///< keys of released files that its class does not read; kept, as there
  /// Null for text models: their families read them.
  Config (*read)(const json& raw, const std::string& where, const std::vector<std::string>& ignore) = nullptr;
};

/// Reads the root's keys and each part. Errors: BadConfig, for parts of other families too.
Config read_wrapper_config(const ConfigSchema& schema, const std::vector<ConfigPart>& parts, const json& raw,
                           const std::string& where, const std::vector<std::string>& ignore);

/// A part of a config that was read; an empty one where it is null.
Config part_of(const Config& config, const std::string& key);

// ------------------------------------------------------------------------------------------------------------- recipe

/// What a multimodal family adds to the text family that its config names.
struct WrapperRecipe {
  std::string class_name;             ///< "Gemma3ForConditionalGeneration"
  std::string model_class;            ///< of the module `model`
  std::vector<std::string> children;  ///< of `model`, as print() shows them
  /// Native paths of towers and projectors, and what they are called.
  std::vector<std::pair<std::string, std::string>> standard_prefixes;
  void (*before_text)(PlanBuilder& b);         ///< the towers
  Slot (*text_ids)(PlanBuilder& b) = nullptr;  ///< what is looked up, where that is not input_ids
  bool capped = true;                          ///< the class applies the text config's softcap
  void (*about)(PlanBuilder& b) = nullptr;     ///< notes and spellings of its own
};

Plan wrapper_plan(const WrapperRecipe& recipe, const Config& config, const RecipeOptions& options);

}  // namespace v0
}  // namespace gemloupe
