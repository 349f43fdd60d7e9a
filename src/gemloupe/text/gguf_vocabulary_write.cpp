#include <algorithm>
#include <numeric>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/mapped_file.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/text/decoder.h"
#include "gemloupe/text/gguf_vocabulary.h"
#include "gemloupe/text/json_reader.h"
#include "gemloupe/text/tokenizer_parts.h"

namespace gemloupe {
inline namespace v0 {

namespace {

enum Type : int32_t { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

constexpr float placeholder = -1000, unused = -10000;  // llama.cpp's scores of added tokens and of unused ones

using Merge = std::pair<std::string, std::string>;

/// A tokenizer.json's, which a Bpe keeps by their hashes only.
std::vector<Merge> merges_of_json(std::string_view text, const std::string& file) {
  std::vector<Merge> merges;
  JsonReader reader(text, file);
  const auto merge = [&] {
    Merge& added = merges.emplace_back();
    if (!reader.next_is('[')) {
      const std::string both = reader.string();
      const size_t space = both.find(' ');
      added = {both.substr(0, space), both.substr(space + 1)};
      return;
    }
    std::string* place = &added.first;
    reader.array([&] { *std::exchange(place, &added.second) = reader.string(); });
  };
  reader.object([&](std::string_view part) {
    if (part != "model") return void(reader.skip());
    reader.object([&](std::string_view key) {
      if (key != "merges") return void(reader.skip());
      reader.array(merge);
    });
  });
  return merges;
}

/// Every way to make the tokens `ids`, in their order, of two tokens: the one with the longer left part first, as
/// readers of a file without merges take them.
std::vector<Merge> merges_that_make(const std::vector<int64_t>& ids, const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  for (const int64_t id : ids) {
    const auto token = vocabulary.token(id);
    if (!token) continue;
    for (size_t cut = token->size(); cut-- > 1;)
      if (vocabulary.find(token->substr(0, cut)) && vocabulary.find(token->substr(cut)))
        merges.emplace_back(token->substr(0, cut), token->substr(cut));
  }
  return merges;
}

std::vector<int64_t> in_order(const Vocabulary& vocabulary) {
  std::vector<int64_t> ids(static_cast<size_t>(vocabulary.end_id()));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

/// A SentencePiece model's: any two neighbours that make a piece together, the piece with the highest score first.
std::vector<Merge> merges_of_pieces(const PieceMerges& pieces, const Vocabulary& vocabulary) {
  std::vector<int64_t> ids = in_order(vocabulary);
  const auto priority = [&](int64_t id) { return pieces.priority[static_cast<size_t>(id)]; };
  std::erase_if(ids, [&](int64_t id) { return priority(id) == PieceMerges::never; });
  std::stable_sort(ids.begin(), ids.end(), [&](int64_t a, int64_t b) { return priority(a) < priority(b); });
  return merges_that_make(ids, vocabulary);
}

struct Source {
  TokenizerParts parts;
  std::vector<Merge> merges;  // in their order
  std::string file;
};

Source read_source(const TokenizerFiles& files) {
  if (files.tokenizer_json) {
    const auto file = MappedFile::open(*files.tokenizer_json);
    const std::string path = files.tokenizer_json->string();
    return {read_tokenizer_json(file->text(), path, files.tokenizer_config), merges_of_json(file->text(), path), path};
  }
  if (!files.tokenizer_model) throw NotFound("this checkpoint has no tokenizer.json and no tokenizer.model.");
  const auto file = MappedFile::open(*files.tokenizer_model);
  const std::string path = files.tokenizer_model->string();
  TokenizerParts parts = read_sentencepiece(file->text(), path, files.tokenizer_config);
  auto merges = merges_of_pieces(std::get<PieceMerges>(parts.bpe.merges()), parts.bpe.vocabulary());
  return {std::move(parts), std::move(merges), path};
}

/// A GGUF file says tokens, merges and special ids. Everything else is as in Gemma's tokenizers, or cannot be said.
void refuse_what_cannot_be_said(const Source& source) {
  const TokenizerParts& parts = source.parts;
  const auto refuse = [&](bool found, const std::string& what) {
    if (found)
      throw BadTokenizer(source.file + ": " + what +
                         ", which a GGUF file cannot say; quantize a copy of the checkpoint without its tokenizer, and "
                         "give token ids in place of text");
  };
  Normalizer spaces;
  spaces.add_replace(" ", std::string(lower_block));
  refuse(parts.normalizer != spaces, "its normalizer does more than turn spaces into ▁");
  Decoder decoder = gemma_decoder();
  if (parts.prefix_space) decoder.add_strip(' ', 1);
  refuse(parts.decoder != decoder, "its decoder is not Gemma's");
  const Bpe::Options& options = parts.bpe.options();
  refuse(!options.fuse_unknown || !options.byte_fallback || options.ignore_merges,
         "its model has not the settings fuse_unk, byte_fallback and no ignore_merges");
  for (const AddedToken& token : parts.added.all())
    refuse(token.lstrip || token.rstrip,
           "the added token " + in_quotes(token.content) + " takes white space beside it along");
  const auto is = [](const std::vector<int64_t>& ids, const std::optional<int64_t>& id) {
    return ids.empty() || (id && ids == std::vector{*id});
  };
  refuse(!is(parts.prefix, parts.special.bos) || !is(parts.suffix, parts.special.eos),
         "it puts other tokens around a text than <bos> and <eos>");
}

class Writer {
 public:
  Writer(const Source& source, const std::string& model, int64_t rows) : source_(source), rows_(rows) {
    out_.model = model;
  }

  GgufVocabulary write() {
    tokens();
    added_tokens();
    merges();
    special_ids();
    return std::move(out_);
  }

 private:
  size_t place(int64_t id) const { return static_cast<size_t>(id); }
  bool has_row(int64_t id) const { return id >= 0 && id < rows_; }
  bool has_row(const std::string& token) const {
    const auto id = vocabulary().find(token);
    return id && has_row(*id);
  }
  const Vocabulary& vocabulary() const { return source_.parts.bpe.vocabulary(); }

  void tokens() {
    const bool has_bytes = source_.parts.bpe.options().byte_fallback;
    for (int64_t id = 0; id < rows_; ++id) {
      const auto token = vocabulary().token(id);
      out_.tokens.push_back(token ? std::string(*token) : "[PAD" + std::to_string(id) + "]");
      out_.types.push_back(!token ? Unused : has_bytes && byte_of_token(*token) >= 0 ? Byte : Normal);
      out_.scores.push_back(token ? 0 : unused);
    }
  }

  void added_tokens() {
    for (const AddedToken& token : source_.parts.added.all()) {
      if (!has_row(token.id)) continue;
      const bool unknown = source_.parts.special.unknown == token.id;
      out_.tokens[place(token.id)] = token.special ? token.content : spelled(token);
      out_.types[place(token.id)] = unknown ? Unknown : token.special ? Control : UserDefined;
      out_.scores[place(token.id)] = placeholder;
    }
  }

  /// What is looked for after normalisation has ▁ where the text that a GGUF's reader searches has its spaces yet.
  static std::string spelled(const AddedToken& token) {
    std::string text = token.content;
    if (!token.normalized) return text;
    for (size_t at; (at = text.find(lower_block)) != text.npos;) text.replace(at, lower_block.size(), " ");
    return text;
  }

  /// Scores are what llama.cpp goes by in a vocabulary of the kind "llama": the sooner a token is made, the higher. We
  /// go by merges where they are listed, else by the order of the tokens, which is Gemma's: then a list says nothing.
  void merges() {
    std::vector<Merge> kept;
    float next = 0;
    std::vector<bool> made(place(rows_));
    for (const Merge& merge : source_.merges) {
      const auto id = vocabulary().find(merge.first + merge.second);
      if (!id || !has_row(*id) || !has_row(merge.first) || !has_row(merge.second)) continue;
      if (!made[*id]) out_.scores[*id] = -next++, made[*id] = true;
      kept.push_back(merge);
    }
    for (size_t id = 0; id < made.size(); ++id)
      if (out_.types[id] == Normal && !made[id]) out_.scores[id] = -next++;
    if (out_.model == "llama" && kept == merges_that_make(in_order(vocabulary()), vocabulary())) return;
    for (const Merge& merge : kept) out_.merges.push_back(line_of(merge));
  }

  std::string line_of(const Merge& merge) const {
    if (merge.first.find(' ', 1) != merge.first.npos || merge.second.find(' ') != merge.second.npos)
      throw BadTokenizer(source_.file + ": the merge of " + in_quotes(merge.first) + " and " + in_quotes(merge.second) +
                         ": a GGUF file cannot say it, its merges have no spaces in them");
    return merge.first + " " + merge.second;
  }

  void special_ids() {
    const auto& [bos, eos, padding, unknown] = source_.parts.special;
    const auto kept = [&](std::optional<int64_t> id) { return id && has_row(*id) ? id : std::nullopt; };
    out_.bos = kept(bos), out_.eos = kept(eos), out_.padding = kept(padding), out_.unknown = kept(unknown);
    out_.add_bos = !source_.parts.prefix.empty() && out_.bos;
    out_.add_eos = !source_.parts.suffix.empty() && out_.eos;
    out_.add_space_prefix = source_.parts.prefix_space;
  }

  const Source& source_;
  int64_t rows_;
  GgufVocabulary out_;
};

}  // namespace

GgufVocabulary gguf_vocabulary(const TokenizerFiles& files, const std::string& model, int64_t rows) {
  if (files.gguf && !files.tokenizer_json && !files.tokenizer_model) return *files.gguf;
  const Source source = read_source(files);
  refuse_what_cannot_be_said(source);
  return Writer(source, model, rows).write();
}

}  // namespace v0
}  // namespace gemloupe
