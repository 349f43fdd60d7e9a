#include "gemloupe/store/gguf_write.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/store/gguf_types.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/store/tensor_bytes.h"

namespace gemloupe {
inline namespace v0 {
namespace {

using namespace gguf;

constexpr uint64_t kAlignment = 32;  // what a file without general.alignment has

/// Little-endian bytes, as the machine has them.
template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_text(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out.append(text);
}

Type type_of(const json& value) {
  switch (value.type()) {
    case json::value_t::boolean:
      return Bool;
    case json::value_t::number_float:
      return F32;
    case json::value_t::string:
      return String;
    case json::value_t::array:
      return Array;
    case json::value_t::number_unsigned:
      return value.get<uint64_t>() <= UINT32_MAX ? U32 : U64;
    case json::value_t::number_integer: {
      const auto number = value.get<int64_t>();
      if (number >= 0) return number <= UINT32_MAX ? U32 : U64;
      return number >= INT32_MIN ? I32 : I64;
    }
    default:
      throw InternalError("GGUF metadata that is neither a number, a string, true or false, nor an array of them");
  }
}

void put_value(std::string& out, Type type, const json& value) {
  switch (type) {
    case U32:
      return put(out, value.get<uint32_t>());
    case U64:
      return put(out, value.get<uint64_t>());
    case I32:
      return put(out, value.get<int32_t>());
    case I64:
      return put(out, value.get<int64_t>());
    case F32:
      return put(out, value.get<float>());
    case Bool:
      return put<uint8_t>(out, value.get<bool>());
    case String:
      return put_text(out, value.get_ref<const std::string&>());
    case Array: {
      const Type elements = value.empty() ? U32 : type_of(value[0]);
      put<uint32_t>(out, elements);
      put<uint64_t>(out, value.size());
      for (const json& element : value) {
        check(type_of(element) == elements, "an array of GGUF metadata holds one kind");
        put_value(out, elements, element);
      }
      return;
    }
    default:
      throw InternalError("a GGUF type without a writer");
  }
}

/// Key-value pairs, which are counted.
class Pairs {
 public:
  void add(std::string_view key, const json& value) {
    const Type type = begin(key, type_of(value));
    put_value(bytes_, type, value);
  }

  void add_id(std::string_view key, const std::optional<int64_t>& id) {
    if (id) add(key, *id);
  }

  template <class T, class Put>
  void add_array(std::string_view key, Type elements, const std::vector<T>& values, Put put_one) {
    if (values.empty()) return;
    begin(key, Array);
    put<uint32_t>(bytes_, elements);
    put<uint64_t>(bytes_, values.size());
    for (const T& value : values) put_one(bytes_, value);
  }

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  Type begin(std::string_view key, Type type) {
    ++count_;
    put_text(bytes_, key);
    put<uint32_t>(bytes_, type);
    return type;
  }

  std::string bytes_;
  uint64_t count_ = 0;
};

void add_vocabulary(Pairs& pairs, const GgufVocabulary& v) {
  const auto text = [](std::string& out, const std::string& value) { put_text(out, value); };
  pairs.add("tokenizer.ggml.model", v.model);
  pairs.add_array("tokenizer.ggml.tokens", String, v.tokens, text);
  pairs.add_array("tokenizer.ggml.scores", F32, v.scores, put<float>);
  pairs.add_array("tokenizer.ggml.token_type", I32, v.types, put<int32_t>);
  pairs.add_array("tokenizer.ggml.merges", String, v.merges, text);
  pairs.add_id("tokenizer.ggml.bos_token_id", v.bos);
  pairs.add_id("tokenizer.ggml.eos_token_id", v.eos);
  pairs.add_id("tokenizer.ggml.unknown_token_id", v.unknown);
  pairs.add_id("tokenizer.ggml.padding_token_id", v.padding);
  pairs.add("tokenizer.ggml.add_bos_token", v.add_bos);
  pairs.add("tokenizer.ggml.add_eos_token", v.add_eos);
  pairs.add("tokenizer.ggml.add_space_prefix", v.add_space_prefix);
}

uint32_t number_of(DType dtype) {
  const auto* at = std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                                [&](const TensorType& type) { return type.dtype == dtype; });
  check(at != kTensorTypes.end(), "a tensor of a type that GGUF has");
  return static_cast<uint32_t>(at - kTensorTypes.begin());
}

uint64_t aligned(uint64_t at) {
  return (at + kAlignment - 1) / kAlignment * kAlignment;
}

/// The tensor table. `sizes` are the tensors' bytes.
std::string table(const std::vector<StoredTensor>& tensors, const std::filesystem::path& path,
                  std::vector<uint64_t>& sizes) {
  std::string out;
  uint64_t at = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::optional<uint64_t> bytes = byte_count(tensor.dtype, tensor.shape);
    if (!bytes)
      throw CannotWrite(path.string() + ": tensor " + in_quotes(tensor.name) + " of the shape " +
                        shape_text(tensor.shape) + " cannot be " + std::string(traits(tensor.dtype).name) +
                        "; choose another type");
    put_text(out, tensor.name);
    put(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) put(out, static_cast<uint64_t>(tensor.shape[i]));  // innermost first
    put(out, number_of(tensor.dtype));
    put(out, at);
    at = aligned(at + *bytes);
    sizes.push_back(*bytes);
  }
  return out;
}

}  // namespace

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufFile& contents) : file_(path) {
  Pairs pairs;
  for (const auto& [key, value] : contents.metadata.items()) pairs.add(key, value);
  if (contents.vocabulary) add_vocabulary(pairs, *contents.vocabulary);
  const std::string tensors = table(contents.tensors, path, sizes_);
  std::string head = "GGUF";
  put<uint32_t>(head, 3);
  put<uint64_t>(head, contents.tensors.size());
  put<uint64_t>(head, pairs.count());
  for (const std::string& part : {std::as_const(head), pairs.bytes(), tensors}) file_.write(part);
  pad();
  if (!sizes_.empty()) left_ = sizes_[0];
  finish_tensors();
}

void GgufWriter::write(const void* data, size_t bytes) {
  check(bytes <= left_, "the elements of one tensor are written at a time, and no more than it has");
  file_.write(data, bytes);
  left_ -= bytes;
  finish_tensors();
}

void GgufWriter::commit() {
  check(tensor_ == sizes_.size(), "all tensors of a GGUF file are written before its commit");
  file_.commit();
}

/// Goes on to the next tensor that has bytes to come.
void GgufWriter::finish_tensors() {
  while (left_ == 0 && tensor_ < sizes_.size()) {
    pad();
    if (++tensor_ < sizes_.size()) left_ = sizes_[tensor_];
  }
}

void GgufWriter::pad() {
  static constexpr char zeros[kAlignment] = {};
  file_.write(zeros, aligned(file_.written()) - file_.written());
}

}  // namespace v0
}  // namespace gemloupe
