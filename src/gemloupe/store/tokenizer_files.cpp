#include "gemloupe/store/tokenizer_files.h"

#include "gemloupe/base/errors.h"
#include "gemloupe/store/mapped_file.h"
#include "gemloupe/store/strict_json.h"

namespace gemloupe {
inline namespace v0 {
namespace {

namespace fs = std::filesystem;

std::optional<fs::path> if_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) ? std::optional(path) : std::nullopt;
}

/// A template as a string, or a list of {name, template}: then the one called "default".
std::optional<std::string> template_in(const json& value, const fs::path& path) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  auto text = [](const json& object, const char* key) {
    const auto at = object.is_object() ? object.find(key) : object.end();
    return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  if (value.is_array()) {
    for (const json& named : value)
      if (text(named, "name") == "default") return text(named, "template");
    return std::nullopt;  // only templates for special uses
  }
  throw BadCheckpoint(path.string() + ": 'chat_template' is " + value.type_name() +
                      ", expected a string or a list of named templates; get the file again");
}

std::optional<std::string> template_member(const json& object, const fs::path& path) {
  const auto at = object.is_object() ? object.find("chat_template") : object.end();
  return at == object.end() ? std::nullopt : template_in(*at, path);
}

std::optional<std::string> find_chat_template(const fs::path& folder, const json& tokenizer_config) {
  if (const auto jinja = if_there(folder / "chat_template.jinja")) return std::string(MappedFile::open(*jinja)->text());
  if (const auto file = if_there(folder / "chat_template.json"))
    if (auto found = template_member(read_json(*file), *file)) return found;
  return template_member(tokenizer_config, folder / "tokenizer_config.json");
}

}  // namespace

TokenizerFiles find_tokenizer_files(const fs::path& folder) {
  TokenizerFiles out;
  out.tokenizer_json = if_there(folder / "tokenizer.json");
  out.tokenizer_model = if_there(folder / "tokenizer.model");
  if (const auto config = if_there(folder / "tokenizer_config.json")) {
    // Six thousand entries in Gemma's files, all of them in tokenizer.json as well: building them costs more than the
    // rest.
    out.tokenizer_config = read_json(*config, out.tokenizer_json ? "added_tokens_decoder" : "");
  }
  out.chat_template = find_chat_template(folder, out.tokenizer_config);
  return out;
}

}  // namespace v0
}  // namespace gemloupe
