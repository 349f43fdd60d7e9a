#include "gemloupe/store/npy.h"

#include <array>
#include <cctype>
#include <cstring>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/store/atomic_file.h"
#include "gemloupe/store/byte_reader.h"
#include "gemloupe/store/dequantize.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/store/tensor_bytes.h"

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr uint64_t kAlignment = 64;

struct Spelling {
  DType dtype;
  std::string_view text;
};

constexpr std::array<Spelling, 9> kSpellings{{{DType::F64, "<f8"},
                                              {DType::F32, "<f4"},
                                              {DType::F16, "<f2"},
                                              {DType::I64, "<i8"},
                                              {DType::I32, "<i4"},
                                              {DType::I16, "<i2"},
                                              {DType::I8, "|i1"},
                                              {DType::U8, "|u1"},
                                              {DType::Bool, "|b1"}}};

/// Reads the header, a Python dict display such as {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  DType dtype{};
  bool fortran_order = false;
  std::vector<int64_t> shape;

  void parse() {
    int seen = 0;  // a bit for each of the three keys
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      expect(':');
      seen |= read_value(key);
      if (!accept(',') && next() != '}') refuse("no comma");
    }
    if (seen != 7) refuse("not all of 'descr', 'fortran_order' and 'shape'");
  }

 private:
  [[noreturn]] void refuse(const std::string& found) const {
    throw BadCheckpoint(where_ + ": its header should be {'descr': …, 'fortran_order': …, 'shape': …}, found " + found +
                        " in " + in_quotes(text_) + "; write the array again with numpy.save or numpy.savez");
  }

  int read_value(std::string_view key) {
    if (key == "descr") {
      dtype = to_dtype();
      return 1;
    }
    if (key == "fortran_order") {
      fortran_order = boolean();
      return 2;
    }
    if (key != "shape") refuse("the key " + in_quotes(key));
    shape = tuple();
    return 4;
  }

  char next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool accept(char c) {
    if (next() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) refuse(std::string("no ") + c);
  }

  bool accept_word(std::string_view word) {
    next();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  std::string_view string() {
    const char quote = next();
    if (quote != '\'' && quote != '"') refuse("no string");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse("an endless string");
    const std::string_view out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return out;
  }

  bool boolean() {
    if (accept_word("True")) return true;
    if (!accept_word("False")) refuse("neither True nor False");
    return false;
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> out;
    expect('(');
    while (!accept(')')) {
      int64_t size = 0;
      if (!std::isdigit(static_cast<unsigned char>(next()))) refuse("no size");
      for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_)
        if (__builtin_mul_overflow(size, 10, &size) || __builtin_add_overflow(size, text_[at_] - '0', &size))
          refuse("a size beyond 2^63");
      accept('L');  // Python 2's long integers
      out.push_back(size);
      if (!accept(',') && next() != ')') refuse("no comma");
    }
    return out;
  }

  DType to_dtype() {
    if (next() == '[') refuse("fields (a structured type; only plain numbers are read)");
    const std::string_view descr = string();
    for (const Spelling& spelling : kSpellings)
      if (descr.size() == 3 && descr.substr(1) == spelling.text.substr(1) &&
          (descr[0] == spelling.text[0] || descr[0] == '=' || traits(spelling.dtype).block_bytes == 1))
        return spelling.dtype;
    throw BadCheckpoint(where_ + ": its type is " + in_quotes(descr) +
                        "; gemloupe reads little-endian float16, float32, float64, int8 to int64, uint8 and bool: "
                        "convert it with .astype()");
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
};

/// A copy whose elements lie row by row; `tensor` holds them column by column.
StoredTensor in_row_order(StoredTensor tensor) {
  const size_t size = static_cast<size_t>(traits(tensor.dtype).block_bytes), rank = tensor.shape.size();
  std::vector<size_t> strides(rank), index(rank);
  size_t stride = size;
  for (size_t i = 0; i < rank; ++i) {
    strides[i] = stride;
    stride *= static_cast<size_t>(tensor.shape[i]);
  }
  std::shared_ptr<std::byte[]> copy(new std::byte[tensor.bytes]);
  const std::byte* from = tensor.data;
  for (size_t to = 0; to < tensor.bytes; to += size) {
    std::memcpy(copy.get() + to, from, size);
    for (size_t i = rank; i-- > 0;) {
      from += strides[i];
      if (++index[i] < static_cast<size_t>(tensor.shape[i])) break;
      from -= strides[i] * index[i];
      index[i] = 0;
    }
  }
  tensor.data = copy.get();
  tensor.file = std::move(copy);
  return tensor;
}

std::string_view header_of(ByteReader& reader, const std::string& where) {
  if (reader.text(kMagic.size(), "the magic '\\x93NUMPY'") != kMagic)
    throw BadCheckpoint(where + ": does not begin with '\\x93NUMPY': this is no numpy array");
  const auto version = reader.number<uint8_t>("the format version");
  reader.skip(1, "the format version");
  if (version < 1 || version > 3)
    throw BadCheckpoint(where + ": is format version " + std::to_string(version) + ", expected 1 to 3");
  const uint64_t length =
      version == 1 ? reader.number<uint16_t>("the header's length") : reader.number<uint32_t>("the header's length");
  return reader.text(length, "the header");
}

}  // namespace

StoredTensor parse_npy(const std::shared_ptr<MappedFile>& file, size_t begin, size_t end, std::string name,
                       const std::string& where) {
  const std::filesystem::path message_path = where;
  ByteReader reader(file->bytes().first(end), message_path, begin);
  HeaderParser header(header_of(reader, where), where);
  header.parse();
  const std::optional<uint64_t> bytes = byte_count(header.dtype, header.shape);
  if (!bytes || *bytes != reader.left())
    throw BadCheckpoint(where + ": " + std::string(traits(header.dtype).name) + " of shape " +
                        shape_text(header.shape) + " takes " + (bytes ? std::to_string(*bytes) : "more than 2^63") +
                        " bytes, found " + std::to_string(reader.left()) + "; get the file again");
  StoredTensor tensor =
      stored_tensor(file, {std::move(name), header.dtype, header.shape, reader.at(), reader.at() + *bytes});
  return header.fortran_order && header.shape.size() > 1 ? in_row_order(std::move(tensor)) : tensor;
}

StoredTensor read_npy(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  return parse_npy(file, 0, file->size(), path.stem().string(), path.string());
}

std::string npy_header(const ArrayToWrite& array, uint64_t offset, const std::string& where) {
  const std::string what = where + ": array " + in_quotes(array.name);
  const auto* spelling = kSpellings.begin();
  while (spelling != kSpellings.end() && spelling->dtype != array.dtype) ++spelling;
  if (spelling == kSpellings.end())
    throw CannotWrite(what + " is " + std::string(traits(array.dtype).name) +
                      ", which numpy files cannot hold; widen it to float32 first");
  if (!byte_count(array.dtype, array.shape))
    throw CannotWrite(what + " has the impossible shape " + shape_text(array.shape));
  std::string shape;
  for (int64_t size : array.shape) shape += std::to_string(size) + ", ";
  if (array.shape.size() > 1) shape.resize(shape.size() - 2);
  std::string text =
      "{'descr': '" + std::string(spelling->text) + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  const uint64_t before = offset + kMagic.size() + 4;
  text.append((kAlignment - (before + text.size() + 1) % kAlignment) % kAlignment, ' ');
  text += '\n';
  check(text.size() < 65536, "a .npy header's length");
  std::string out(kMagic);
  out += {'\x01', '\x00', static_cast<char>(text.size() & 255), static_cast<char>(text.size() >> 8)};
  return out + text;
}

void write_npy(const std::filesystem::path& path, const ArrayToWrite& array) {
  const std::string header = npy_header(array, 0, path.string());
  AtomicFile file(path);
  file.write(header);
  file.write(array.data, *byte_count(array.dtype, array.shape));
  file.commit();
}

std::vector<float> widen_bfloat16(const ArrayToWrite& array) {
  check(array.dtype == DType::BF16, "widen_bfloat16() of another type");
  std::vector<float> out(static_cast<size_t>(element_count(array.shape).value()));
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, array.data + 2 * i, sizeof(bits));
    out[i] = bfloat16_to_float(bits);
  }
  return out;
}

}  // namespace v0
}  // namespace gemloupe
