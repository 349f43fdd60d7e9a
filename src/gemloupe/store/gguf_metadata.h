// A GGUF file's key-value pairs. Only gguf.cpp includes this.
#pragma once

#include "gemloupe/store/byte_reader.h"
#include "gemloupe/store/gguf.h"

namespace gemloupe {
inline namespace v0 {

/// A length-prefixed string that has to be UTF-8; `what` names it for messages.
std::string_view gguf_text(ByteReader& reader, const std::string& what);

/// Reads `pairs` key-value pairs into `out.metadata` and `out.vocabulary`.
void read_gguf_metadata(ByteReader& reader, uint64_t pairs, GgufFile& out);

}  // namespace v0
}  // namespace gemloupe
