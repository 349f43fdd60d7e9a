#include "gemloupe/text/protobuf.h"

#include <cstring>

#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(take(1)[0]);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  throw BadTokenizer(file_ + ": expected a SentencePiece model, found a number of more than 64 bits");
}

std::string_view ProtobufReader::take(uint64_t count) {
  if (count > rest_.size()) {
    throw BadTokenizer(file_ + ": expected a SentencePiece model; the file ends " +
                       std::to_string(count - rest_.size()) + " bytes early, or is something else");
  }
  const std::string_view value = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return value;
}

bool ProtobufReader::next() {
  if (!taken_) {
    if (kind_ == Varint) {
      varint();
    } else {
      take(kind_ == Bytes ? varint() : kind_ == Fixed64 ? 8 : 4);
    }
  }
  if (rest_.empty()) return false;
  const uint64_t tag = varint();
  field_ = static_cast<uint32_t>(tag >> 3);
  kind_ = static_cast<uint32_t>(tag & 7);
  taken_ = false;
  if (field_ == 0 || tag >> 32 != 0 || (kind_ != Varint && kind_ != Fixed64 && kind_ != Bytes && kind_ != Fixed32)) {
    throw BadTokenizer(file_ + ": expected a SentencePiece model, found bytes that are no protocol buffer");
  }
  return true;
}

void ProtobufReader::expect(Kind kind) {
  if (kind_ != kind || taken_) {
    throw BadTokenizer(file_ + ": expected a SentencePiece model; field " + std::to_string(field_) +
                       " is of another kind than there");
  }
  taken_ = true;
}

int64_t ProtobufReader::integer() {
  expect(Varint);
  return static_cast<int64_t>(varint());
}

float ProtobufReader::real() {
  expect(Fixed32);
  float value;
  std::memcpy(&value, take(4).data(), 4);
  return value;
}

std::string_view ProtobufReader::bytes() {
  expect(Bytes);
  return take(varint());
}

}  // namespace v0
}  // namespace gemloupe
