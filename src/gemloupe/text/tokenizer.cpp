#include "gemloupe/text/tokenizer.h"

#include <algorithm>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/mapped_file.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/text/tokenizer_parts.h"

namespace gemloupe {
inline namespace v0 {

namespace {

/// Text that is UTF-8 now, and for each byte the bytes of the original that it stands for.
NormalizedText with_replacements(std::string_view text) {
  NormalizedText result;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    const auto unit = point.valid ? text.substr(at, point.bytes) : replacement_character;
    result.text += unit;
    result.origin.insert(result.origin.end(), unit.size(),
                         {static_cast<uint32_t>(at), static_cast<uint32_t>(at + point.bytes)});
    at += point.bytes;
  }
  return result;
}

Range original(const NormalizedText& text, size_t begin, size_t end) {
  return begin == end ? Range{0, 0} : Range{text.origin[begin].first, text.origin[end - 1].second};
}

/// Encodes one text: raw added tokens, then what lies between them is normalised, searched for normalised ones, and
/// merged.
class Encoder {
 public:
  explicit Encoder(const TokenizerParts& parts) : parts_(parts) {}

  Encoding encode(std::string_view text) {
    for (const Piece& piece : parts_.added.split_raw(text)) {
      if (piece.token != nullptr) {
        add(piece.token->id, {piece.begin, piece.end});
      } else {
        encode_between(text.substr(piece.begin, piece.end - piece.begin), piece.begin);
      }
    }
    return std::move(encoding_);
  }

 private:
  void encode_between(std::string_view text, size_t offset) {
    NormalizedText normalized = parts_.normalizer.apply(text, offset);
    if (parts_.prefix_space && offset == 0) {
      normalized.text.insert(0, lower_block);
      normalized.origin.insert(normalized.origin.begin(), lower_block.size(), {0, 0});
    }
    for (const Piece& piece : parts_.added.split_normalized(normalized.text)) {
      if (piece.token != nullptr) {
        add(piece.token->id, original(normalized, piece.begin, piece.end));
      } else {
        merge(normalized, piece.begin, piece.end);
      }
    }
  }

  void merge(const NormalizedText& text, size_t begin, size_t end) {
    spans_.clear();
    parts_.bpe.encode(std::string_view(text.text).substr(begin, end - begin), spans_);
    for (const TokenSpan& span : spans_) add(span.id, original(text, begin + span.begin, begin + span.end));
  }

  void add(int64_t id, Range range) {
    encoding_.ids.push_back(id);
    encoding_.offsets.push_back(range);
  }

  const TokenizerParts& parts_;
  Encoding encoding_;
  std::vector<TokenSpan> spans_;
};

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts) : parts_(std::make_shared<const TokenizerParts>(std::move(parts))) {}

Tokenizer Tokenizer::load(const TokenizerFiles& files) {
  if (files.tokenizer_json) {
    const auto file = MappedFile::open(*files.tokenizer_json);
    return Tokenizer(read_tokenizer_json(file->text(), files.tokenizer_json->string(), files.tokenizer_config));
  }
  if (files.tokenizer_model) {
    const auto file = MappedFile::open(*files.tokenizer_model);
    return Tokenizer(read_sentencepiece(file->text(), files.tokenizer_model->string(), files.tokenizer_config));
  }
  if (files.gguf) return Tokenizer(read_gguf_vocabulary(*files.gguf, files.tokenizer_config));
  throw NotFound(
      "this checkpoint has no tokenizer: expected tokenizer.json, tokenizer.model or a GGUF vocabulary beside the "
      "weights. "
      "Copy the tokenizer's files into its folder, or give token ids in place of text.");
}

Encoding Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  if (text.size() > UINT32_MAX / 4)
    throw BadPrompt("a text of " + std::to_string(text.size()) + " bytes: expected less than 1 GiB");
  Encoding encoding;
  if (is_utf8(text)) {
    encoding = Encoder(*parts_).encode(text);
  } else {
    const NormalizedText valid = with_replacements(text);
    encoding = Encoder(*parts_).encode(valid.text);
    for (auto& [begin, end] : encoding.offsets) std::tie(begin, end) = original(valid, begin, end);
  }
  if (!add_special_tokens) return encoding;
  const auto& [bos, eos, padding, unknown] = special();
  for (auto id = prefix().rbegin(); id != prefix().rend(); ++id) {
    if (bos && *id == *bos && !encoding.ids.empty() && encoding.ids.front() == *bos) continue;
    encoding.ids.insert(encoding.ids.begin(), *id);
    encoding.offsets.insert(encoding.offsets.begin(), {0, 0});
  }
  encoding.ids.insert(encoding.ids.end(), suffix().begin(), suffix().end());
  encoding.offsets.resize(encoding.ids.size());
  return encoding;
}

std::optional<std::string_view> Tokenizer::text_of(int64_t id, bool skip_special_tokens) const {
  if (const AddedToken* token = parts_->added.find(id)) {
    if (skip_special_tokens && token->special) return std::nullopt;
    return token->content;
  }
  return parts_->bpe.vocabulary().token(id);
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int64_t id : ids) {
    if (const auto text = text_of(id, skip_special_tokens)) tokens.emplace_back(*text);
  }
  return parts_->decoder.decode(std::move(tokens));
}

std::optional<std::string> Tokenizer::id_to_token(int64_t id) const {
  const auto text = text_of(id, false);
  return text ? std::optional(std::string(*text)) : std::nullopt;
}

std::optional<int64_t> Tokenizer::token_to_id(std::string_view token) const {
  if (const AddedToken* added = parts_->added.find(token)) return added->id;
  const auto id = parts_->bpe.vocabulary().find(token);
  return id ? std::optional<int64_t>(*id) : std::nullopt;
}

size_t Tokenizer::size() const {
  const Vocabulary& vocabulary = parts_->bpe.vocabulary();
  const auto& added = parts_->added.all();
  return vocabulary.size() + std::count_if(added.begin(), added.end(),
                                           [&](const AddedToken& token) { return !vocabulary.find(token.content); });
}

int64_t Tokenizer::end_id() const {
  const auto& added = parts_->added.all();
  return std::max(parts_->bpe.vocabulary().end_id(), added.empty() ? 0 : added.back().id + 1);
}

const SpecialIds& Tokenizer::special() const {
  return parts_->special;
}

bool Tokenizer::is_special(int64_t id) const {
  const AddedToken* token = parts_->added.find(id);
  return token != nullptr && token->special;
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const {
  return parts_->added.all();
}
const std::vector<int64_t>& Tokenizer::prefix() const {
  return parts_->prefix;
}
const std::vector<int64_t>& Tokenizer::suffix() const {
  return parts_->suffix;
}

std::string TokenStream::push(int64_t id) {
  const auto text = tokenizer_.text_of(id, skip_special_tokens_);
  if (!text) return {};
  held_.emplace_back(*text);
  // What is held is never more than the beginning of one character: a byte that does not go on with it ends it.
  std::string bytes;
  for (const std::string& token : held_) {
    const int byte = tokenizer_.parts_->decoder.has_byte_fallback() ? byte_of_token(token) : -1;
    if (byte < 0) return finish();
    bytes.push_back(static_cast<char>(byte));
  }
  return code_point_at(bytes, 0).cut_off ? "" : finish();
}

std::string TokenStream::finish() {
  if (held_.empty()) return {};
  const std::string text = tokenizer_.parts_->decoder.decode(std::exchange(held_, {}), at_start_);
  at_start_ = false;
  return text;
}

}  // namespace v0
}  // namespace gemloupe
