#include "gemloupe/store/gguf_metadata.h"

#include <array>
#include <string>
#include <unordered_set>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/gguf_types.h"
#include "gemloupe/store/printable.h"

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr const char* kAgain = "; get the file again";
constexpr int kDeepestArray = 8;
constexpr uint64_t kLongestArray = uint64_t{1} << 24;  // of those that become JSON; the vocabulary's are not among them

using namespace gguf;

/// The least that one value takes in the file: what a count is checked against before anything is allocated.
constexpr std::array<uint64_t, kTypes> kLeastBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

[[noreturn]] void refuse(const ByteReader& reader, const std::string& what) {
  throw BadCheckpoint(reader.path().string() + ": " + what + kAgain);
}

Type read_type(ByteReader& reader, const std::string& what) {
  const auto type = reader.number<uint32_t>("the type of " + what);
  if (type >= kTypes) refuse(reader, what + " has type " + std::to_string(type) + ", expected 0 to 12");
  return static_cast<Type>(type);
}

struct ArrayHead {
  Type type;
  uint64_t count;
};

ArrayHead read_array_head(ByteReader& reader, const std::string& what) {
  const Type type = read_type(reader, "the elements of " + what);
  const auto count = reader.number<uint64_t>("the length of " + what);
  if (count > reader.left() / kLeastBytes[type])
    refuse(reader, what + " would have " + std::to_string(count) + " elements, but only " +
                       std::to_string(reader.left()) + " bytes are left: cut short or broken");
  return {type, count};
}

json read_value(ByteReader& reader, Type type, const std::string& what, int depth = 0);

json read_array(ByteReader& reader, const std::string& what, int depth) {
  const ArrayHead head = read_array_head(reader, what);
  if (depth >= kDeepestArray) refuse(reader, what + " nests deeper than " + std::to_string(kDeepestArray) + " arrays");
  if (head.count > kLongestArray)
    refuse(reader, what + " has " + std::to_string(head.count) + " elements, expected at most " +
                       std::to_string(kLongestArray));
  json::array_t out;
  out.reserve(head.count);
  for (uint64_t i = 0; i < head.count; ++i) out.push_back(read_value(reader, head.type, what, depth + 1));
  return out;
}

json read_value(ByteReader& reader, Type type, const std::string& what, int depth) {
  switch (type) {
    case U8:
      return reader.number<uint8_t>(what);
    case I8:
      return reader.number<int8_t>(what);
    case U16:
      return reader.number<uint16_t>(what);
    case I16:
      return reader.number<int16_t>(what);
    case U32:
      return reader.number<uint32_t>(what);
    case I32:
      return reader.number<int32_t>(what);
    case F32:
      return reader.number<float>(what);
    case Bool:
      return reader.number<uint8_t>(what) != 0;
    case String:
      return std::string(gguf_text(reader, what));
    case Array:
      return read_array(reader, what, depth);
    case U64:
      return reader.number<uint64_t>(what);
    case I64:
      return reader.number<int64_t>(what);
    case F64:
      return reader.number<double>(what);
    case kTypes:
      break;
  }
  throw InternalError("a GGUF type without a reader");
}

/// Tokens and merges are not checked for UTF-8: a vocabulary may hold pieces of characters.
std::vector<std::string> read_texts(ByteReader& reader, const std::string& what) {
  const ArrayHead head = read_array_head(reader, what);
  if (head.type != String)
    refuse(reader, what + " has elements of type " + std::to_string(head.type) + ", expected 8, string");
  std::vector<std::string> out;
  out.reserve(head.count);
  for (uint64_t i = 0; i < head.count; ++i) out.emplace_back(reader.text(reader.number<uint64_t>(what), what));
  return out;
}

template <class T>
std::vector<T> read_numbers(ByteReader& reader, Type expected, const std::string& what) {
  const ArrayHead head = read_array_head(reader, what);
  // Token types are written as unsigned by some converters.
  if (head.type != expected && !(expected == I32 && head.type == U32))
    refuse(reader,
           what + " has elements of type " + std::to_string(head.type) + ", expected " + std::to_string(expected));
  std::vector<T> out(head.count);
  const auto bytes = reader.raw(head.count * sizeof(T), what);
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

/// The vocabulary's arrays go straight to where they belong: a DOM of 262,144 tokens would cost more than all the rest.
bool read_vocabulary_array(ByteReader& reader, const std::string& key, GgufVocabulary& out) {
  const std::string what = in_quotes(key);
  if (key == "tokenizer.ggml.tokens") return out.tokens = read_texts(reader, what), true;
  if (key == "tokenizer.ggml.merges") return out.merges = read_texts(reader, what), true;
  if (key == "tokenizer.ggml.scores") return out.scores = read_numbers<float>(reader, F32, what), true;
  if (key == "tokenizer.ggml.token_type") return out.types = read_numbers<int32_t>(reader, I32, what), true;
  return false;
}

/// The vocabulary's scalars, out of the metadata that has been read.
class Scalars {
 public:
  Scalars(const json& metadata, const std::filesystem::path& path) : metadata_(metadata), path_(path) {}

  std::string text(const char* key) const {
    const json* value = find(key);
    if (!value) return "";
    if (!value->is_string()) refuse_kind(key, *value, "a string");
    return value->get<std::string>();
  }

  std::optional<int64_t> id(const char* key) const {
    const json* value = find(key);
    if (!value) return std::nullopt;
    const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= INT64_MAX : value->is_number_integer();
    if (!fits) refuse_kind(key, *value, "a token id");
    return value->get<int64_t>();
  }

  bool flag(const char* key, bool otherwise) const {
    const json* value = find(key);
    if (value && !value->is_boolean()) refuse_kind(key, *value, "true or false");
    return value ? value->get<bool>() : otherwise;
  }

 private:
  const json* find(const char* key) const {
    const auto at = metadata_.find(std::string("tokenizer.ggml.") + key);
    return at == metadata_.end() ? nullptr : &*at;
  }

  [[noreturn]] void refuse_kind(const char* key, const json& value, const char* expected) const {
    throw BadCheckpoint(path_.string() + ": 'tokenizer.ggml." + key + "' is " + printable(value.dump(), 60) +
                        ", expected " + expected + kAgain);
  }

  const json& metadata_;
  const std::filesystem::path& path_;
};

void finish_vocabulary(const ByteReader& reader, const json& metadata, GgufVocabulary& out) {
  const Scalars scalars(metadata, reader.path());
  out.model = scalars.text("model");
  out.bos = scalars.id("bos_token_id");
  out.eos = scalars.id("eos_token_id");
  out.unknown = scalars.id("unknown_token_id");
  out.padding = scalars.id("padding_token_id");
  out.add_bos = scalars.flag("add_bos_token", out.add_bos);
  out.add_eos = scalars.flag("add_eos_token", out.add_eos);
  out.add_space_prefix = scalars.flag("add_space_prefix", out.add_space_prefix);
  const size_t tokens = out.tokens.size();
  auto agree = [&](size_t count, const char* key) {
    if (count != 0 && count != tokens)
      refuse(reader, "'tokenizer.ggml.tokens' has " + std::to_string(tokens) + " elements, but '" + key + "' has " +
                         std::to_string(count) + ", expected as many");
  };
  agree(out.scores.size(), "tokenizer.ggml.scores");
  agree(out.types.size(), "tokenizer.ggml.token_type");
}

}  // namespace

std::string_view gguf_text(ByteReader& reader, const std::string& what) {
  const std::string_view text = reader.text(reader.number<uint64_t>("the length of " + what), what);
  if (!is_utf8(text)) refuse(reader, what + " is " + in_quotes(text) + ", expected UTF-8");
  return text;
}

void read_gguf_metadata(ByteReader& reader, uint64_t pairs, GgufFile& out) {
  constexpr uint64_t kLeastPair = 8 + 4 + 1;
  if (pairs > reader.left() / kLeastPair)
    refuse(reader, "the file would have " + std::to_string(pairs) + " metadata keys, but only " +
                       std::to_string(reader.left()) + " bytes are left: cut short or broken");
  GgufVocabulary vocabulary;
  auto& entries = out.metadata.get_ref<json::object_t&>();
  std::unordered_set<std::string_view> keys;  // views of the file
  for (uint64_t i = 0; i < pairs; ++i) {
    const std::string_view key = gguf_text(reader, "metadata key " + std::to_string(i));
    if (!keys.insert(key).second) refuse(reader, "the metadata key " + in_quotes(key) + " is there twice");
    const std::string name(key);
    const Type type = read_type(reader, in_quotes(name));
    if (type == Array && read_vocabulary_array(reader, name, vocabulary)) continue;
    entries.emplace_back(name, read_value(reader, type, in_quotes(name)));
  }
  finish_vocabulary(reader, out.metadata, vocabulary);
  if (!vocabulary.tokens.empty()) out.vocabulary = std::move(vocabulary);
}

}  // namespace v0
}  // namespace gemloupe
