// The vocabulary inside a GGUF file. Where it lists no merges, the order of its tokens is their order: Gemma's scores
// do not follow it (those of user-defined tokens are placeholders).
#include <algorithm>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/text/tokenizer_parts.h"

namespace gemloupe {
inline namespace v0 {

namespace {

constexpr char file[] = "the GGUF file's vocabulary";

enum Type : int32_t { Unknown = 2, Control = 3, UserDefined = 4 };

/// Runs of spaces are stored as spaces; text has ▁ by the time that it is looked up.
std::string respelled(const std::string& token) {
  if (token.size() < 2 || token.find_first_not_of(' ') != token.npos) return token;
  std::string result;
  for (size_t i = 0; i < token.size(); ++i) result += lower_block;
  return result;
}

PairMerges listed_merges(const std::vector<std::string>& lines) {
  PairMerges merges;
  merges.reserve(lines.size());
  for (const std::string_view line : lines) {
    const size_t space = line.find(' ', 1);  // not at 0: a token has a character
    if (space == line.npos)
      throw BadTokenizer(std::string(file) + ": the merge " + in_quotes(line) +
                         ": expected two tokens with a space between");
    merges.add(line.substr(0, space), line.substr(space + 1));
  }
  merges.index();
  return merges;
}

PieceMerges merges_in_token_order(size_t count) {
  PieceMerges merges;
  merges.longer_left_first = true;
  for (size_t id = 0; id < count; ++id) merges.priority.push_back(static_cast<uint32_t>(id));
  return merges;
}

std::optional<int64_t> checked(std::optional<int64_t> id, const char* which, size_t count) {
  if (id && (*id < 0 || *id >= static_cast<int64_t>(count))) {
    throw BadTokenizer(std::string(file) + ": " + which + " " + std::to_string(*id) + ": expected an id below " +
                       std::to_string(count));
  }
  return id;
}

void check(const GgufVocabulary& source) {
  if (source.model != "llama" && source.model != "gemma4") {
    throw BadTokenizer(std::string(file) + ": tokenizer.ggml.model " + in_quotes(source.model) +
                       " is not implemented; Gemma's are \"llama\" and \"gemma4\"");
  }
  if (source.tokens.empty() || source.tokens.size() > Vocabulary::most_ids) {
    throw BadTokenizer(std::string(file) + ": expected up to " + std::to_string(Vocabulary::most_ids) +
                       " tokens, found " + std::to_string(source.tokens.size()));
  }
  if (!source.types.empty() && source.types.size() != source.tokens.size()) {
    throw BadTokenizer(std::string(file) + ": expected a type for each of " + std::to_string(source.tokens.size()) +
                       " tokens, found " + std::to_string(source.types.size()));
  }
}

}  // namespace

TokenizerParts read_gguf_vocabulary(const GgufVocabulary& source, const json& config) {
  check(source);
  Vocabulary vocabulary;
  vocabulary.reserve(source.tokens.size(), source.tokens.size() * 12);
  std::vector<AddedToken> added;
  for (size_t id = 0; id < source.tokens.size(); ++id) {
    const std::string token = respelled(source.tokens[id]);
    vocabulary.add(token, static_cast<int64_t>(id));
    const int32_t type = source.types.empty() ? 0 : source.types[id];
    // A run of spaces is made by merges, as every other word.
    if (type == Unknown || type == Control || (type == UserDefined && token == source.tokens[id])) {
      added.push_back({static_cast<int64_t>(id), token, type != UserDefined});
    }
  }
  vocabulary.index();
  Bpe::Options options;
  if (const auto unknown = checked(source.unknown, "unknown_token_id", source.tokens.size()))
    options.unknown = static_cast<uint32_t>(*unknown);
  Normalizer normalizer;
  normalizer.add_replace(" ", std::string(lower_block));
  Decoder decoder = gemma_decoder();
  if (source.add_space_prefix) decoder.add_strip(' ', 1);

  std::variant<PairMerges, PieceMerges> merges;
  if (source.merges.empty()) {
    merges = merges_in_token_order(source.tokens.size());
  } else {
    merges = listed_merges(source.merges);
  }
  TokenizerParts parts{.bpe = Bpe(std::move(vocabulary), std::move(merges), options),
                       .added = AddedTokens(std::move(added), normalizer),
                       .normalizer = normalizer,
                       .decoder = std::move(decoder),
                       .prefix_space = source.add_space_prefix,
                       .special = {}};
  parts.special = {checked(source.bos, "bos_token_id", source.tokens.size()),
                   checked(source.eos, "eos_token_id", source.tokens.size()),
                   checked(source.padding, "padding_token_id", source.tokens.size()), source.unknown};
  if (source.add_bos && source.bos) parts.prefix = {*source.bos};
  if (source.add_eos && source.eos) parts.suffix = {*source.eos};
  set_special_tokens(parts, config);
  return parts;
}

}  // namespace v0
}  // namespace gemloupe
