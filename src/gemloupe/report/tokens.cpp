#include "gemloupe/report/tokens.h"

#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {

std::string token_text(const Tokenizer& tokenizer, int64_t id) {
  std::string text = tokenizer.decode({&id, 1});
  if (!text.empty() && text.find(replacement_character) == std::string::npos) return text;
  auto spelling = tokenizer.id_to_token(id);
  return spelling ? *spelling : std::string("#") + std::to_string(id);
}

}  // namespace v0
}  // namespace gemloupe
