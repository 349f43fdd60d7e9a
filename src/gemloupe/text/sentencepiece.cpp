// tokenizer.model: a SentencePiece model of the kind "BPE", which is what Google's own releases of Gemma carry. It
// gives the ids that SentencePiece gives, but for control tokens such as <bos> in the text: those are recognised.
#include <bit>
#include <cmath>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/text/protobuf.h"
#include "gemloupe/text/tokenizer_parts.h"

namespace gemloupe {
inline namespace v0 {

namespace {

enum PieceType { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

struct PieceRow {
  std::string_view text;
  float score = 0;
  int64_t type = Normal;
};

/// The settings that matter, with the defaults of SentencePiece's schema.
struct Model {
  std::vector<PieceRow> pieces;
  int64_t kind = 1, unknown = 0, bos = 1, eos = 2, padding = -1;
  bool byte_fallback = false, space_as_suffix = false;
  bool has_character_map = false, dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;
};

void read_piece(ProtobufReader fields, Model& model) {
  PieceRow piece;
  while (fields.next()) {
    switch (fields.field()) {
      case 1:
        piece.text = fields.bytes();
        break;
      case 2:
        piece.score = fields.real();
        break;
      case 3:
        piece.type = fields.integer();
        break;
    }
  }
  model.pieces.push_back(piece);
}

void read_trainer_settings(ProtobufReader fields, Model& model) {
  while (fields.next()) {
    switch (fields.field()) {
      case 3:
        model.kind = fields.integer();
        break;
      case 24:
        model.space_as_suffix = fields.boolean();
        break;
      case 35:
        model.byte_fallback = fields.boolean();
        break;
      case 40:
        model.unknown = fields.integer();
        break;
      case 41:
        model.bos = fields.integer();
        break;
      case 42:
        model.eos = fields.integer();
        break;
      case 43:
        model.padding = fields.integer();
        break;
    }
  }
}

void read_normalizer_settings(ProtobufReader fields, Model& model) {
  while (fields.next()) {
    switch (fields.field()) {
      case 2:
        model.has_character_map = !fields.bytes().empty();
        break;
      case 3:
        model.dummy_prefix = fields.boolean();
        break;
      case 4:
        model.remove_extra_spaces = fields.boolean();
        break;
      case 5:
        model.escape_spaces = fields.boolean();
        break;
    }
  }
}

Model read_model(std::string_view bytes, const std::string& file) {
  Model model;
  ProtobufReader fields(bytes, file);
  while (fields.next()) {
    switch (fields.field()) {
      case 1:
        read_piece({fields.bytes(), file}, model);
        break;
      case 2:
        read_trainer_settings({fields.bytes(), file}, model);
        break;
      case 3:
        read_normalizer_settings({fields.bytes(), file}, model);
        break;
    }
  }
  return model;
}

void refuse_what_is_not_implemented(const Model& model, const std::string& file) {
  auto refuse = [&](bool found, const std::string& what) {
    if (found) throw BadTokenizer(file + ": " + what);
  };
  static constexpr const char* kinds[] = {"none", "unigram", "BPE", "word", "char"};
  const std::string kind = model.kind >= 1 && model.kind <= 4 ? kinds[model.kind] : std::to_string(model.kind);
  refuse(model.pieces.empty() || model.pieces.size() > Vocabulary::most_ids,
         "expected a SentencePiece model with up to " + std::to_string(Vocabulary::most_ids) + " pieces, found " +
             std::to_string(model.pieces.size()));
  refuse(model.kind != 2, "a SentencePiece model of the kind " + kind + " is not implemented; Gemma's are BPE");
  refuse(model.has_character_map,
         "a SentencePiece model with a character map (NFKC or the like) is not implemented; Gemma's have none");
  refuse(model.remove_extra_spaces,
         "SentencePiece's remove_extra_whitespaces is not implemented; Gemma's models do not use it");
  refuse(model.space_as_suffix,
         "SentencePiece's treat_whitespace_as_suffix is not implemented; Gemma's models do not use it");
  refuse(!model.escape_spaces, "a SentencePiece model without escape_whitespaces is not implemented; Gemma's have it");
}

/// Scores in the order in which merges go: the highest is the lowest number. The bits of floats of one sign order as
/// integers.
uint32_t priority_of(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score == 0 ? 0.0f : score);
  return bits >> 31 != 0 ? bits : ~bits & 0x7FFFFFFF;
}

/// Turns the pieces into a vocabulary, its merges and its added tokens.
class Pieces {
 public:
  Pieces(const Model& model, const std::string& file) : file_(file) {
    vocabulary.reserve(model.pieces.size(), model.pieces.size() * 12);
    for (const PieceRow& piece : model.pieces) add(piece);
    vocabulary.index();
  }

  Vocabulary vocabulary;
  PieceMerges merges;
  std::vector<AddedToken> added;

 private:
  void add(const PieceRow& piece) {
    const int64_t id = static_cast<int64_t>(merges.priority.size());
    const std::string where = file_ + ": the piece " + std::to_string(id) + ", " + in_quotes(piece.text) + ", ";
    if (piece.text.empty() || !is_utf8(piece.text)) throw BadTokenizer(where + "is not a text in UTF-8");
    if (std::isnan(piece.score)) throw BadTokenizer(where + "has no number as its score");
    if (piece.type < Normal || piece.type > Byte || piece.type == Unused) {
      throw BadTokenizer(where + "is of the type " + std::to_string(piece.type) + ", which is not implemented");
    }
    vocabulary.add(piece.text, id);
    const bool mergeable = piece.type == Normal || piece.type == UserDefined;
    merges.priority.push_back(mergeable ? priority_of(piece.score) : PieceMerges::never);
    if (piece.type == UserDefined) {
      added.push_back({.id = id, .content = std::string(piece.text), .special = false, .normalized = true});
    } else if (piece.type == Unknown || piece.type == Control) {
      added.push_back({.id = id, .content = std::string(piece.text), .special = true});
    }
  }

  const std::string& file_;
};

}  // namespace

TokenizerParts read_sentencepiece(std::string_view bytes, const std::string& file, const json& config) {
  const Model model = read_model(bytes, file);
  refuse_what_is_not_implemented(model, file);
  const int64_t count = static_cast<int64_t>(model.pieces.size());
  const auto id = [&](int64_t value) { return value >= 0 && value < count ? std::optional(value) : std::nullopt; };
  if (!id(model.unknown))
    throw BadTokenizer(file + ": its unknown piece is number " + std::to_string(model.unknown) + " of " +
                       std::to_string(count));

  Pieces pieces(model, file);
  Normalizer normalizer;
  normalizer.add_replace(" ", std::string(lower_block));
  Decoder decoder = gemma_decoder();
  if (model.dummy_prefix) decoder.add_strip(' ', 1);
  const Bpe::Options options{.unknown = static_cast<uint32_t>(model.unknown), .byte_fallback = model.byte_fallback};
  TokenizerParts parts{.bpe = Bpe(std::move(pieces.vocabulary), std::move(pieces.merges), options),
                       .added = AddedTokens(std::move(pieces.added), normalizer),
                       .normalizer = normalizer,
                       .decoder = std::move(decoder),
                       .prefix_space = model.dummy_prefix,
                       .special = {id(model.bos), id(model.eos), id(model.padding), id(model.unknown)}};
  if (parts.special.bos) parts.prefix = {*parts.special.bos};
  set_special_tokens(parts, config);
  return parts;
}

}  // namespace v0
}  // namespace gemloupe
