// tokenizer.json, the format of the PyPI package `tokenizers`, as far as Gemma's tokenizers go. Every component is
// either implemented or refused by name: a tokenizer that is nearly right gives ids that are quietly wrong.
#include <functional>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/text/json_reader.h"
#include "gemloupe/text/tokenizer_parts.h"

namespace gemloupe {
inline namespace v0 {

namespace {

constexpr int deepest_sequence = 8;

/// Reads the components one by one as the file brings them, and puts them together at the end.
class TokenizerJson {
 public:
  TokenizerJson(std::string_view text, const std::string& file)
      : reader_(text, file), file_(file), bytes_(text.size()) {}

  TokenizerParts read(const json& config) {
    reader_.object([&](std::string_view key) { component(std::string(key)); });
    reader_.end();
    if (!has_model_) refuse("it has no \"model\"");
    normalizer("normalizer", normalizer_json_);
    pre_tokenizer(pre_tokenizer_json_, 0);
    decoder(decoder_json_, 0);
    post_processor(post_processor_json_, 0);
    return assemble(config);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw BadTokenizer(file_ + ": " + why); }

  [[noreturn]] void refuse(const std::string& what, const json& found, const std::string& expected) const {
    refuse(what + " " + printable(found.dump(-1, ' ', false, json::error_handler_t::replace)) +
           " is not implemented; gemloupe reads " + expected);
  }

  void component(const std::string& key) {
    if (key == "model") return model();
    if (key == "added_tokens") return added_tokens();
    if (key == "normalizer") return void(normalizer_json_ = reader_.tree());
    if (key == "pre_tokenizer") return void(pre_tokenizer_json_ = reader_.tree());
    if (key == "post_processor") return void(post_processor_json_ = reader_.tree());
    if (key == "decoder") return void(decoder_json_ = reader_.tree());
    // Truncation and padding are settings of one call, which transformers resets as well.
    if (key == "version" || key == "truncation" || key == "padding") return void(reader_.tree());
    refuse("an unknown component " + in_quotes(key));
  }

  // --- model ---

  void model() {
    has_model_ = true;
    reader_.object([&](std::string_view key) {
      if (key == "vocab") return vocabulary();
      if (key == "merges") return merges();
      if (key == "fuse_unk") return void(options_.fuse_unknown = reader_.boolean());
      if (key == "byte_fallback") return void(options_.byte_fallback = reader_.boolean());
      if (key == "ignore_merges") return void(options_.ignore_merges = reader_.boolean());
      setting(std::string(key), reader_.tree());
    });
  }

  void setting(const std::string& key, const json& value) {
    if (key == "type") {
      if (value != "BPE") refuse("the model", value, "\"BPE\"");
    } else if (key == "unk_token") {
      if (value.is_string()) unknown_ = value.get<std::string>();
    } else if (key == "dropout") {
      if (!value.is_null() && value != 0) refuse("model.dropout", value, "null");
    } else if (key == "continuing_subword_prefix" || key == "end_of_word_suffix") {
      if (!value.is_null() && value != "") refuse("model." + key, value, "null");
    } else {
      refuse("an unknown model setting " + in_quotes(key));
    }
  }

  void vocabulary() {
    // A token takes 128 bytes of a Gemma's file with its merges, a merge 64: a guess that spares growing.
    vocabulary_.reserve(bytes_ / 128, bytes_ / 16);
    reader_.object([&](std::string_view token) {
      const int64_t id = reader_.integer();
      if (id < 0 || id >= Vocabulary::most_ids) {
        refuse("the token " + in_quotes(token) + " has the id " + std::to_string(id) + ": expected 0 to " +
               std::to_string(Vocabulary::most_ids - 1));
      }
      vocabulary_.add(token, id);
    });
  }

  void merges() {
    merges_.reserve(bytes_ / 64);
    std::string left_scratch, right_scratch;
    reader_.array([&] {
      if (!reader_.next_is('[')) {
        const std::string_view both = reader_.string(left_scratch);
        const size_t space = both.find(' ');
        if (space == both.npos || both.find(' ', space + 1) != both.npos)
          refuse("the merge " + in_quotes(both) + ": expected two tokens with one space between");
        return merges_.add(both.substr(0, space), both.substr(space + 1));
      }
      std::string_view pair[2];
      size_t count = 0;
      reader_.array([&] {
        if (count == 2) reader_.fail("two tokens in a merge");
        pair[count] = reader_.string(count == 0 ? left_scratch : right_scratch);
        ++count;
      });
      if (count != 2) reader_.fail("two tokens in a merge");
      merges_.add(pair[0], pair[1]);
    });
  }

  // --- added tokens ---

  void added_tokens() {
    reader_.array([&] {
      AddedToken token;
      bool single_word = false;
      reader_.object([&](std::string_view key) {
        if (key == "id") return void(token.id = reader_.integer());
        if (key == "content") return void(token.content = reader_.string());
        if (key == "special") return void(token.special = reader_.boolean());
        if (key == "normalized") return void(token.normalized = reader_.boolean());
        if (key == "lstrip") return void(token.lstrip = reader_.boolean());
        if (key == "rstrip") return void(token.rstrip = reader_.boolean());
        if (key == "single_word") return void(single_word = reader_.boolean());
        refuse("an unknown setting " + in_quotes(key) + " of an added token");
      });
      if (token.id < 0 || token.id >= Vocabulary::most_ids) {
        refuse("the added token " + in_quotes(token.content) + ": expected an id from 0 to " +
               std::to_string(Vocabulary::most_ids - 1));
      }
      if (single_word) refuse("the added token " + in_quotes(token.content) + ": \"single_word\" is not implemented");
      added_.push_back(std::move(token));
    });
  }

  // --- normalizer and pre-tokenizer ---

  /// The string of {"String": …}.
  std::string pattern(const std::string& what, const json& value) const {
    const json found = value.value("pattern", json());
    if (!found.is_object() || !found.contains("String") || !found["String"].is_string() || found["String"] == "") {
      refuse("the pattern of the " + what, found, "a pattern {\"String\": …}");
    }
    return found["String"];
  }

  std::string text(const std::string& what, const json& value, const char* key) const {
    if (!value.contains(key) || !value[key].is_string())
      refuse(what + " " + printable(value.dump()) + ": expected a string \"" + key + "\"");
    return value[key];
  }

  /// The type of a component; a "Sequence" is gone through, each part by `part`, and leaves "".
  std::string type(const std::string& what, const json& value, const char* list,
                   const std::function<void(const json&)>& part, int depth) const {
    if (!value.is_object()) refuse(what + " " + printable(value.dump()) + ": expected an object");
    const std::string name = text(what, value, "type");
    if (name != "Sequence") return name;
    if (depth == deepest_sequence || !value.contains(list) || !value[list].is_array()) {
      refuse(what + ": expected a list \"" + list + "\", at most " + std::to_string(deepest_sequence) + " deep");
    }
    for (const json& element : value[list]) part(element);
    return "";
  }

  void normalizer(const std::string& what, const json& value, int depth = 0) {
    if (value.is_null()) return;
    const std::string name = type(
        what, value, "normalizers", [&](const json& part) { normalizer(what, part, depth + 1); }, depth);
    if (name == "Replace") {
      normalizer_.add_replace(pattern(what, value), text(what, value, "content"));
    } else if (name == "Prepend") {
      normalizer_.add_prepend(text(what, value, "prepend"));
    } else if (name != "") {
      refuse("the normalizer", value["type"], "Replace, Prepend and Sequence");
    }
  }

  /// Gemma's splits at spaces, of which the normalizer has left none.
  void pre_tokenizer(const json& value, int depth) {
    if (value.is_null()) return;
    const std::string name = type(
        "pre_tokenizer", value, "pretokenizers", [&](const json& part) { pre_tokenizer(part, depth + 1); }, depth);
    if (name == "") return;
    if (name != "Split") refuse("the pre_tokenizer", value["type"], "Split");
    if (value.value("invert", false) || !normalizer_.removes(pattern("pre_tokenizer", value))) {
      refuse("the pre_tokenizer", value, "a Split at a character that the normalizer replaces");
    }
  }

  // --- decoder and post-processor ---

  void decoder(const json& value, int depth) {
    if (value.is_null()) refuse("the decoder", value, "Sequence, Replace, ByteFallback, Fuse and Strip");
    const std::string name = type(
        "decoder", value, "decoders", [&](const json& part) { decoder(part, depth + 1); }, depth);
    if (name == "Replace") {
      decoder_.add_replace(pattern("decoder", value), text("decoder", value, "content"));
    } else if (name == "ByteFallback") {
      decoder_.add_byte_fallback();
    } else if (name == "Fuse") {
      decoder_.add_fuse();
    } else if (name == "Strip") {
      strip(value);
    } else if (name != "") {
      refuse("the decoder", value["type"], "Sequence, Replace, ByteFallback, Fuse and Strip");
    }
  }

  void strip(const json& value) {
    const std::string content = text("decoder", value, "content");
    const json start = value.value("start", json()), stop = value.value("stop", json());
    const CodePoint character = content.empty() ? CodePoint{} : code_point_at(content, 0);
    if (!start.is_number_unsigned() || stop != 0 || character.bytes != content.size()) {
      refuse("the decoder", value, "a Strip of one character at the start only");
    }
    decoder_.add_strip(character.value, start);
  }

  void post_processor(const json& value, int depth) {
    if (value.is_null()) return;
    const std::string name = type(
        "post_processor", value, "processors", [&](const json& part) { post_processor(part, depth + 1); }, depth);
    if (name == "") return;
    if (name != "TemplateProcessing") refuse("the post_processor", value["type"], "TemplateProcessing");
    const json single = value.value("single", json()), tokens = value.value("special_tokens", json());
    bool text_seen = false;
    for (const json& item : single.is_array() ? single : json::array()) {
      if (item.contains("Sequence")) {
        text_seen = true;
      } else {
        for (const int64_t id : template_ids(item, tokens)) (text_seen ? suffix_ : prefix_).push_back(id);
      }
    }
    if (!text_seen) refuse("the post_processor's \"single\"", single, "a template with one Sequence");
  }

  std::vector<int64_t> template_ids(const json& item, const json& tokens) const {
    try {
      return tokens.at(item.at("SpecialToken").at("id").get<std::string>()).at("ids").get<std::vector<int64_t>>();
    } catch (const json::exception&) {
      refuse("the post_processor's item", item, "a SpecialToken that \"special_tokens\" gives ids for");
    }
  }

  // --- all together ---

  TokenizerParts assemble(const json& config) {
    vocabulary_.index();
    if (!unknown_.empty()) {
      options_.unknown = vocabulary_.find(unknown_);
      if (!options_.unknown) refuse("model.unk_token " + in_quotes(unknown_) + ": expected it in the vocabulary");
    }
    for (const AddedToken& token : added_) {
      const auto id = vocabulary_.find(token.content);
      if (id && *id != token.id) {
        refuse("the added token " + in_quotes(token.content) + " has the id " + std::to_string(token.id) +
               ", in the vocabulary it has " + std::to_string(*id));
      }
    }
    merges_.index();
    TokenizerParts parts{.bpe = Bpe(std::move(vocabulary_), std::move(merges_), options_),
                         .added = AddedTokens(std::move(added_), normalizer_),
                         .normalizer = normalizer_,
                         .decoder = decoder_,
                         .prefix = prefix_,
                         .suffix = suffix_,
                         .special = {}};
    set_special_tokens(parts, config);
    return parts;
  }

  JsonReader reader_;
  std::string file_;
  size_t bytes_;
  bool has_model_ = false;
  json normalizer_json_, pre_tokenizer_json_, post_processor_json_, decoder_json_;

  Vocabulary vocabulary_;
  PairMerges merges_;
  Bpe::Options options_{.unknown = {}, .fuse_unknown = false, .byte_fallback = false};
  std::string unknown_;
  std::vector<AddedToken> added_;
  Normalizer normalizer_;
  Decoder decoder_;
  std::vector<int64_t> prefix_, suffix_;
};

}  // namespace

TokenizerParts read_tokenizer_json(std::string_view text, const std::string& file, const json& tokenizer_config) {
  return TokenizerJson(text, file).read(tokenizer_config);
}

}  // namespace v0
}  // namespace gemloupe
