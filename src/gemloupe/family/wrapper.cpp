#include "gemloupe/family/wrapper.h"

#include <algorithm>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// The keys to ignore inside a part: its own, "text_config.KEY", and plain ones.
std::vector<std::string> ignored_inside(const ConfigPart& part, const std::vector<std::string>& ignore) {
  std::vector<std::string> inside = ignore;
  for (const std::string& key : ignore)
    if (key.starts_with(part.key + ".")) inside.push_back(key.substr(part.key.size() + 1));
  inside.insert(inside.end(), part.unread.begin(), part.unread.end());
  return inside;
}

std::string model_type_of(const ConfigPart& part, const json& raw, const json& root, const std::string& where) {
  if (!raw.contains("model_type") || raw["model_type"].is_null()) return part.model_types[0];
  const json& type = raw["model_type"];
  if (type.is_string() && std::find(part.model_types.begin(), part.model_types.end(), type) != part.model_types.end())
    return type.get<std::string>();
  throw BadConfig(where + ": " + part.key + " has the model_type " + type.dump() + ", but a checkpoint of '" +
                  root["model_type"].get<std::string>() + "' holds " + quoted_list(part.model_types) +
                  ". This config mixes families; take config.json from where the weights are.");
}

json read_part(const ConfigPart& part, const json& root, const std::string& where,
               const std::vector<std::string>& ignore, std::vector<std::string>& warnings) {
  const bool missing = !root.contains(part.key) || root[part.key].is_null();
  if (missing && part.optional) return nullptr;
  if (missing)
    throw BadConfig(where + ": " + part.key + " is missing, but every checkpoint of '" +
                    root["model_type"].get<std::string>() + "' has one. Is this the config of its " +
                    (part.read ? "text model alone" : "tower alone") + "?");
  const json& raw = root[part.key];
  if (!raw.is_object()) throw BadConfig(where + ": " + part.key + " must be an object, but it is " + raw.dump() + ".");
  const std::string type = model_type_of(part, raw, root, where);
  auto read = part.read ? part.read : find_family(type, where).read_config;
  Config config = read(raw, where + ": " + part.key, ignored_inside(part, ignore));
  warnings.insert(warnings.end(), config.warnings.begin(), config.warnings.end());
  return config.attributes();
}

}  // namespace

Config read_wrapper_config(const ConfigSchema& schema, const std::vector<ConfigPart>& parts, const json& raw,
                           const std::string& where, const std::vector<std::string>& ignore) {
  ConfigSchema whole = schema;
  for (const ConfigPart& part : parts) whole.keys.push_back({part.key, KeyType::Any, nullptr, true});
  Config config = read_config(whole, raw, where, ignore);
  // What the root's class does not read may stand in its parts too: a part is saved with the ids of its own tokens.
  std::vector<std::string> inside = ignore;
  inside.insert(inside.end(), schema.unread.begin(), schema.unread.end());
  for (const ConfigPart& part : parts)
    config.attributes()[part.key] = read_part(part, raw, where, inside, config.warnings);
  return config;
}

Config part_of(const Config& config, const std::string& key) {
  const json& part = config.attributes()[key];
  return Config(part.is_null() ? json::object() : part);
}

namespace {

/// How released files, and those that the versions of the reference wrote, spell the weights.
void wrapper_spellings(PlanBuilder& b) {
  Plan& plan = b.plan();
  plan.spellings = {{"model.language_model.", "language_model.model."},
                    {"model.vision_tower.", "vision_tower.vision_model."},
                    {"model.vision_tower.", "model.vision_tower.vision_model."},
                    {"model.", ""},
                    {"lm_head.", "language_model.lm_head."}};
  // Files that keep a tied head's weight under the head's name only.
  if (plan.config.flag("tie_word_embeddings"))
    for (const char* head : {"lm_head.weight", "language_model.lm_head.weight"})
      plan.spellings.emplace_back("model.language_model.embed_tokens.weight", head);
  plan.ignored_weights = {"**.rotary_emb.inv_freq", "**.embeddings.position_ids"};
}

}  // namespace

Plan wrapper_plan(const WrapperRecipe& recipe, const Config& config, const RecipeOptions& options) {
  const Config text = part_of(config, "text_config");
  const Family& family = find_family(text.text("model_type"), "text_config");
  auto prefixes = recipe.standard_prefixes;
  prefixes.emplace_back("model.language_model.", "");
  PlanBuilder b(family.model_type, recipe.class_name, config, prefixes);
  b.plan().text_config = text;
  run_inputs(b);
  Slot stream = -1;
  {
    auto model = b.module("model", recipe.model_class, recipe.children);
    model.arguments(
        {{"input_ids", b.input_ids()}, {"attention_mask", b.attention_mask()}, {"position_ids", b.position_ids()}});
    recipe.before_text(b);
    const Slot ids = recipe.text_ids ? recipe.text_ids(b) : b.input_ids();
    stream = family.text_model(b, {"language_model", true, ids}, options);
    model.returns(PartSpec::tuple({stream}, {"last_hidden_state"}));
  }
  const bool cap = recipe.capped || options.softcap_choice != "default";
  text_head(b, stream, "model.language_model", cap ? chosen_softcap(text, options) : std::nullopt);
  wrapper_spellings(b);
  family.about_text(b);
  if (recipe.about) recipe.about(b);
  return b.finish();
}

}  // namespace v0
}  // namespace gemloupe
