// The vectors that tools/make_text_vectors.py wrote, and tokenizers made of pieces of JSON.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gemloupe/base/errors.h"
#include "gemloupe/text/tokenizer.h"
#include "gemloupe/text/tokenizer_parts.h"

namespace gemloupe::test {

/// A file of tests/data/text: under $GEMLOUPE_TESTS, else it lies above this program.
inline std::filesystem::path text_data(const char* name) {
  namespace fs = std::filesystem;
  if (const char* folder = std::getenv("GEMLOUPE_TESTS")) return fs::path(folder) / "data" / "text" / name;
  fs::path at = fs::read_symlink("/proc/self/exe");
  while (at.has_relative_path() && !fs::exists(at / "tests" / "data" / "text")) at = at.parent_path();
  return at / "tests" / "data" / "text" / name;
}

inline std::string read_text(const char* name) {
  std::ifstream file(text_data(name), std::ios::binary);
  REQUIRE_MESSAGE(file, text_data(name).string());
  return {std::istreambuf_iterator<char>(file), {}};
}

inline json read_vectors(const char* name) {
  return json::parse(read_text(name));
}

/// A file that is gone at the end of the test.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const std::string& content)
      : path_(std::filesystem::temp_directory_path() / ("gemloupe-text-" + std::to_string(getpid()) + "-" + name)) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline Tokenizer tokenizer_from_json(const std::string& content, const json& config = nullptr) {
  const TemporaryFile file("tokenizer.json", content);
  TokenizerFiles files;
  files.tokenizer_json = file.path();
  files.tokenizer_config = config;
  return Tokenizer::load(files);
}

inline Tokenizer tokenizer_from_model(const std::string& content, const json& config = nullptr) {
  const TemporaryFile file("tokenizer.model", content);
  TokenizerFiles files;
  files.tokenizer_model = file.path();
  files.tokenizer_config = config;
  return Tokenizer::load(files);
}

/// The tiny tokenizer, with a merge patch (RFC 7386) applied to its JSON.
inline Tokenizer tiny_tokenizer(const std::string& patch = "{}", const std::string& config = "null") {
  json content = read_vectors("tokenizer.json");
  content.merge_patch(json::parse(patch));
  return tokenizer_from_json(content.dump(), json::parse(config));
}

/// The same vocabulary as a GGUF file carries it.
inline GgufVocabulary tiny_gguf_vocabulary() {
  const json content = read_vectors("tokenizer.json");
  GgufVocabulary gguf;
  gguf.model = "llama";
  for (const auto& [token, id] : content["model"]["vocab"].items()) {
    const bool is_byte = token.size() == 6 && token.starts_with("<0x");
    std::string spelling = token;
    if (size_t width = lower_block.size(); token.size() > width && token.starts_with(lower_block)) {
      std::string rest = token;
      while (rest.starts_with(lower_block)) rest.erase(0, width);
      if (rest.empty()) spelling = std::string(token.size() / width, ' ');
    }
    gguf.tokens.push_back(spelling);
    gguf.types.push_back(is_byte ? 6 : spelling == token ? 1 : 4);
  }
  for (const json& token : content["added_tokens"]) gguf.types[token["id"].get<size_t>()] = token["special"] ? 3 : 4;
  gguf.bos = 2, gguf.eos = 1, gguf.unknown = 3, gguf.padding = 0;
  return gguf;
}

inline Tokenizer tokenizer_from_gguf(GgufVocabulary vocabulary) {
  TokenizerFiles files;
  files.gguf = std::move(vocabulary);
  return Tokenizer::load(files);
}

}  // namespace gemloupe::test
