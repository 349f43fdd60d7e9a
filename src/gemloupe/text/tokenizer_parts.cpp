#include "gemloupe/text/tokenizer_parts.h"

#include "gemloupe/base/errors.h"
#include "gemloupe/store/printable.h"

namespace gemloupe {
inline namespace v0 {

std::optional<std::string> configured_token(const json& config, const char* key) {
  if (!config.is_object() || !config.contains(key) || config[key].is_null()) return std::nullopt;
  const json& value = config[key];
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  throw BadTokenizer(std::string("tokenizer_config.json: ") + key + ": expected a string, found " +
                     printable(value.dump()));
}

namespace {

std::optional<bool> configured_flag(const json& config, const char* key) {
  if (!config.is_object() || !config.contains(key) || config[key].is_null()) return std::nullopt;
  if (config[key].is_boolean()) return config[key].get<bool>();
  throw BadTokenizer(std::string("tokenizer_config.json: ") + key + ": expected true or false, found " +
                     printable(config[key].dump()));
}

std::optional<int64_t> id_of(const TokenizerParts& parts, const std::string& token) {
  if (const AddedToken* added = parts.added.find(token)) return added->id;
  const auto id = parts.bpe.vocabulary().find(token);
  return id ? std::optional<int64_t>(*id) : std::nullopt;
}

}  // namespace

void set_special_tokens(TokenizerParts& parts, const json& config) {
  auto set = [&](std::optional<int64_t>& id, const char* key, const char* usual) {
    if (const auto token = configured_token(config, key)) {
      id = id_of(parts, *token);
    } else if (!id) {
      id = id_of(parts, usual);
    }
  };
  set(parts.special.bos, "bos_token", "<bos>");
  set(parts.special.eos, "eos_token", "<eos>");
  set(parts.special.padding, "pad_token", "<pad>");
  set(parts.special.unknown, "unk_token", "<unk>");

  const auto add_bos = configured_flag(config, "add_bos_token"), add_eos = configured_flag(config, "add_eos_token");
  if (!add_bos && !add_eos) return;
  // As in transformers, either flag rewrites the whole template.
  const auto& special = parts.special;
  parts.prefix = add_bos.value_or(false) && special.bos ? std::vector{*special.bos} : std::vector<int64_t>{};
  parts.suffix = add_eos.value_or(false) && special.eos ? std::vector{*special.eos} : std::vector<int64_t>{};
}

Decoder gemma_decoder() {
  Decoder decoder;
  decoder.add_replace(std::string(lower_block), " ");
  decoder.add_byte_fallback();
  decoder.add_fuse();
  return decoder;
}

}  // namespace v0
}  // namespace gemloupe
