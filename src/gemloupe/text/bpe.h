// Byte-pair encoding: which tokens a text merges into.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "gemloupe/text/vocabulary.h"

namespace gemloupe {
inline namespace v0 {

/// Merges as a list of pairs, the first of which goes first: tokenizer.json. There are half a million of them, so a
/// pair is known by a hash of its texts: nothing is looked up while they are read. A merge of tokens that the
/// vocabulary lacks is noticed when a text brings it up.
class PairMerges {
 public:
  void reserve(size_t count) { keys_.reserve(count); }
  void add(std::string_view left, std::string_view right);  ///< a pair that comes again takes the later rank

  /// Makes rank() work: to be called once, after the last pair.
  void index();

  std::optional<uint32_t> rank(uint64_t left_hash, uint64_t right_hash) const;

 private:
  struct Slot {
    uint32_t hash = 0, rank = UINT32_MAX;
  };
  size_t slot_of(uint64_t key) const;

  std::vector<uint64_t> keys_;  // by rank
  std::vector<Slot> slots_;     // a power of two, at most half of them taken
};

/// Any two neighbours merge whose texts make a token together; its priority is the merge's: SentencePiece and GGUF.
struct PieceMerges {
  static constexpr uint32_t never = UINT32_MAX;
  std::vector<uint32_t> priority;  ///< by id, the lowest first; `never` for a token that no merge makes
  bool longer_left_first = false;  ///< of two ways into the same token, the one with the longer left part goes first
};

/// A token and the bytes of the text that it stands for.
struct TokenSpan {
  int64_t id;
  uint32_t begin, end;
};

class Bpe {
 public:
  struct Options {
    std::optional<uint32_t> unknown;
    bool fuse_unknown = true;    ///< neighbouring unknown characters make one token
    bool byte_fallback = true;   ///< an unknown character becomes the tokens <0x00> … <0xFF> of its bytes
    bool ignore_merges = false;  ///< a text that is a token as a whole is that token
  };

  /// Both indexed.
  Bpe(Vocabulary vocabulary, std::variant<PairMerges, PieceMerges> merges, Options options);

  /// Appends the tokens of `text`, which is UTF-8 below 4 GiB. Takes O(n log n) steps; `steps` counts them, for tests.
  void encode(std::string_view text, std::vector<TokenSpan>& tokens, size_t* steps = nullptr) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const Options& options() const { return options_; }
  const std::variant<PairMerges, PieceMerges>& merges() const { return merges_; }

 private:
  struct Symbol;
  struct Candidate;
  struct Work;

  std::optional<uint64_t> merge_rank(const Symbol& left, const Symbol& right, std::string_view text) const;
  uint32_t merged_id(std::string_view token) const;
  size_t word_end(std::string_view text, size_t begin) const;
  void split_into_characters(std::string_view text, size_t begin, size_t end, Work& work) const;
  void merge_symbols(std::string_view text, Work& work) const;

  Vocabulary vocabulary_;
  std::variant<PairMerges, PieceMerges> merges_;
  Options options_;
  std::vector<uint32_t> byte_ids_;  // <0x00> … <0xFF>, no_id where the vocabulary lacks one
  bool words_are_apart_ = false;    // no token reaches over the beginning of a run of ▁
};

}  // namespace v0
}  // namespace gemloupe
