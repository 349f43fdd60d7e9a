// Chats as the text that an instruction-tuned model expects: rendered by the checkpoint's own template.
#pragma once

#include <string>
#include <string_view>

#include "gemloupe/store/checkpoint.h"
#include "gemloupe/text/tokenizer.h"

namespace gemloupe {
inline namespace v0 {

/// `messages` is an array of objects such as {"role": "user", "content": "Hello"}; a member that is null counts as left
/// out, as in transformers. `options` is an object of further variables: add_generation_prompt, tools, documents,
/// bos_token, …; the first three are false, none and none where they are left out. The text has <bos> in it where the
/// template writes it; Tokenizer::encode adds no second. Errors: BadTokenizer with the template's line, for what is
/// broken or not implemented in it; BadPrompt for messages that are not of this form or that the template refuses.
std::string render_chat(std::string_view chat_template, const json& messages, const json& options = json::object());

/// The tokens that templates name, for `options`: bos_token, eos_token, pad_token, unk_token.
json special_token_texts(const Tokenizer& tokenizer);

}  // namespace v0
}  // namespace gemloupe
