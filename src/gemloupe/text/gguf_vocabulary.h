// A tokenizer in the form that GGUF files carry. Tokenizer::load reads it back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

/// The vocabulary of `rows` tokens, as many as the model's embedding has: ids without a token get one that is unused,
/// tokens beyond it are left out. `model` is tokenizer.ggml.model, "llama" or "gemma4". A GGUF's own vocabulary is
/// taken as it is. Runs of spaces are merged by a GGUF's reader, where a tokenizer.model takes the longest token first:
/// that shows in runs that are longer than any. Errors: NotFound, BadTokenizer for what the form cannot say.
GgufVocabulary gguf_vocabulary(const TokenizerFiles& files, const std::string& model, int64_t rows);

}  // namespace v0
}  // namespace gemloupe
