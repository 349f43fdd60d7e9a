#include "gemloupe/base/errors.h"
#include "gemloupe/text/tokenizer_parts.h"

namespace gemloupe {
inline namespace v0 {

TokenizerParts read_sentencepiece(std::string_view, const std::string& file, const json&) {
  throw BadTokenizer(file + ": tokenizer.model is not implemented yet");
}

}  // namespace v0
}  // namespace gemloupe
