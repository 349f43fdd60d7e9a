#include "gemloupe/text/chat.h"

#include "gemloupe/base/errors.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/text/jinja/template.h"

namespace gemloupe {
inline namespace v0 {

namespace {

json without_nulls(const json& message) {
  json out = json::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) out[key] = value;
  }
  // Reasoning goes by three names; templates read the first, and gpt-oss's the second.
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!out.contains(name)) continue;
    const json reasoning = out[name];
    if (!out.contains("thinking")) out["thinking"] = reasoning;
    out["reasoning_content"] = reasoning;
    break;
  }
  return out;
}

json checked(const json& messages) {
  if (!messages.is_array())
    throw BadPrompt("a chat: expected a list of messages, found " + std::string(messages.type_name()));
  json out = json::array();
  for (const json& message : messages) {
    if (!message.is_object()) {
      throw BadPrompt(
          "a chat's message: expected an object such as {\"role\": \"user\", \"content\": \"Hello\"}, found " +
          printable(message.dump(-1, ' ', false, json::error_handler_t::replace)));
    }
    out.push_back(without_nulls(message));
  }
  return out;
}

}  // namespace

std::string render_chat(std::string_view chat_template, const json& messages, const json& options) {
  json variables = {{"add_generation_prompt", false}, {"tools", nullptr}, {"documents", nullptr}};
  if (options.is_object()) variables.update(options);
  variables["messages"] = checked(messages);
  return jinja::Template(chat_template).render(variables);
}

json special_token_texts(const Tokenizer& tokenizer) {
  json out = json::object();
  const auto add = [&](const char* name, std::optional<int64_t> id) {
    if (id) out[name] = tokenizer.id_to_token(*id).value_or("");
  };
  const auto& [bos, eos, padding, unknown] = tokenizer.special();
  add("bos_token", bos), add("eos_token", eos), add("pad_token", padding), add("unk_token", unknown);
  return out;
}

}  // namespace v0
}  // namespace gemloupe
