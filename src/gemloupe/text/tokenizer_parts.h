// What a tokenizer is made of, and the three kinds of file that it is read from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gemloupe/store/checkpoint.h"
#include "gemloupe/text/added_tokens.h"
#include "gemloupe/text/bpe.h"
#include "gemloupe/text/decoder.h"
#include "gemloupe/text/normalizer.h"
#include "gemloupe/text/tokenizer.h"

namespace gemloupe {
inline namespace v0 {

struct TokenizerParts {
  Bpe bpe;
  AddedTokens added;
  Normalizer normalizer;
  Decoder decoder;
  bool prefix_space =
      false;  ///< SentencePiece's dummy prefix: a ▁ before a text that does not begin with an added token
  std::vector<int64_t> prefix = {}, suffix = {};
  SpecialIds special = {};
};

/// `file` is for messages. All throw BadTokenizer.
TokenizerParts read_tokenizer_json(std::string_view text, const std::string& file, const json& tokenizer_config);
TokenizerParts read_sentencepiece(std::string_view bytes, const std::string& file, const json& tokenizer_config);
TokenizerParts read_gguf_vocabulary(const GgufVocabulary& vocabulary, const json& tokenizer_config);

/// The token that tokenizer_config.json names under `key` ("bos_token", …): a string, or an object with "content".
std::optional<std::string> configured_token(const json& tokenizer_config, const char* key);

/// Fills in `special`, from tokenizer_config.json, else as it is, else by Gemma's usual names; and what is put around a
/// text, where tokenizer_config.json says so.
void set_special_tokens(TokenizerParts& parts, const json& tokenizer_config);

/// Gemma's decoder: ▁ to spaces, byte tokens to text.
Decoder gemma_decoder();

}  // namespace v0
}  // namespace gemloupe
