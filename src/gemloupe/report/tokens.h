// How one token is shown.
#pragma once

#include <cstdint>
#include <string>

#include "gemloupe/text/tokenizer.h"

namespace gemloupe {
inline namespace v0 {

/// " Paris"; the vocabulary's own spelling where the token is no text by itself ("<bos>", "<0xE2>"); "#5" for an id
/// that no token has.
std::string token_text(const Tokenizer& tokenizer, int64_t id);

}  // namespace v0
}  // namespace gemloupe
