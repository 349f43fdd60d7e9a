#include "gemloupe/text/bpe.h"

#include <algorithm>
#include <bit>
#include <string>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {

namespace {

constexpr uint32_t none = UINT32_MAX;

/// Not symmetric: (a, b) and (b, a) are different pairs.
uint64_t pair_key(uint64_t left_hash, uint64_t right_hash) {
  const uint64_t key = (left_hash ^ std::rotl(right_hash, 23) * 0xC2B2AE3D27D4EB4Fu) * 0x9E3779B97F4A7C15u;
  return key ^ (key >> 31);
}

std::string byte_token(size_t byte) {
  static constexpr char digits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
}

/// Whether some token has ▁ right after another character, so that it reaches over the beginning of a word.
bool some_token_spans_words(const Vocabulary& vocabulary) {
  bool found = false;
  vocabulary.each([&](std::string_view token, uint32_t) {
    for (size_t at = token.find(lower_block, 1); at != token.npos; at = token.find(lower_block, at + 1)) {
      found |= at < lower_block.size() || token.substr(at - lower_block.size(), lower_block.size()) != lower_block;
    }
  });
  return found;
}

}  // namespace

void PairMerges::add(std::string_view left, std::string_view right) {
  keys_.push_back(pair_key(hash_text(left), hash_text(right)));
}

size_t PairMerges::slot_of(uint64_t key) const {
  const uint32_t hash = static_cast<uint32_t>(key);
  for (size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.rank == none || (slot.hash == hash && keys_[slot.rank] == key)) return at;
  }
}

void PairMerges::index() {
  slots_.assign(std::bit_ceil(keys_.size() * 2 + 1), {});
  for (uint32_t i = 0; i < keys_.size(); ++i) {
    // The table is larger than the caches: ask for a slot well before it is needed.
    constexpr uint32_t ahead = 16;
    if (i + ahead < keys_.size()) __builtin_prefetch(&slots_[keys_[i + ahead] & (slots_.size() - 1)], 1);
    slots_[slot_of(keys_[i])] = {static_cast<uint32_t>(keys_[i]), i};
  }
}

std::optional<uint32_t> PairMerges::rank(uint64_t left_hash, uint64_t right_hash) const {
  if (slots_.empty()) return std::nullopt;
  const uint32_t rank = slots_[slot_of(pair_key(left_hash, right_hash))].rank;
  return rank == none ? std::nullopt : std::optional(rank);
}

/// A part of the text that is one token so far; merged symbols are a linked list, so that a merge costs O(1).
struct Bpe::Symbol {
  uint32_t begin, length;  // length 0: merged into its left neighbour
  uint32_t previous, next;
  uint32_t id;
  uint64_t hash;  // of the text; 0 for a byte or an unknown token, which stand for a text that is not theirs and do not
                  // merge
};

struct Bpe::Candidate {
  uint64_t rank;
  uint32_t symbol, length;  // the left symbol, the bytes of both

  bool operator<(const Candidate& other) const {  // std's heaps put the greatest first
    return rank != other.rank ? rank > other.rank : symbol > other.symbol;
  }
};

struct Bpe::Work {
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  size_t steps = 0;
};

Bpe::Bpe(Vocabulary vocabulary, std::variant<PairMerges, PieceMerges> merges, Options options)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), options_(options), byte_ids_(256, none) {
  for (size_t byte = 0; byte < 256; ++byte) byte_ids_[byte] = vocabulary_.find(byte_token(byte)).value_or(none);
  words_are_apart_ = vocabulary_.find(lower_block) && !some_token_spans_words(vocabulary_);
}

std::optional<uint64_t> Bpe::merge_rank(const Symbol& left, const Symbol& right, std::string_view text) const {
  if (left.hash == 0 || right.hash == 0) return std::nullopt;
  if (const auto* pairs = std::get_if<PairMerges>(&merges_)) return pairs->rank(left.hash, right.hash);
  const auto merged = vocabulary_.find(text.substr(left.begin, left.length + right.length));
  if (!merged) return std::nullopt;
  const PieceMerges& pieces = std::get<PieceMerges>(merges_);
  if (pieces.priority[*merged] == PieceMerges::never) return std::nullopt;
  const uint32_t second = pieces.longer_left_first ? UINT32_MAX - left.length : 0;
  return static_cast<uint64_t>(pieces.priority[*merged]) << 32 | second;
}

uint32_t Bpe::merged_id(std::string_view token) const {
  const auto id = vocabulary_.find(token);
  if (!id)
    throw BadTokenizer("the tokenizer has merges that make " + in_quotes(token) +
                       ": expected it in the vocabulary, found it missing");
  return *id;
}

/// Where the word that begins at `begin` ends. Spaces are ▁ here, so a text is one word by nature; but where no token
/// reaches over the beginning of a run of ▁, no merge does, and small heaps are faster than one large one.
size_t Bpe::word_end(std::string_view text, size_t begin) const {
  if (!words_are_apart_) return text.size();
  const size_t width = lower_block.size();
  for (size_t at = begin; (at = text.find(lower_block, at)) != text.npos; at += width) {
    if (at > begin && (at < begin + width || text.substr(at - width, width) != lower_block)) return at;
  }
  return text.size();
}

void Bpe::split_into_characters(std::string_view text, size_t begin, size_t end, Work& work) const {
  auto& symbols = work.symbols;
  bool fusing = false;
  auto add = [&](size_t at, size_t length, uint32_t id, uint64_t hash) {
    const uint32_t index = static_cast<uint32_t>(symbols.size());
    symbols.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(length), index - 1, index + 1, id, hash});
  };
  for (size_t at = begin, length; at < end; at += length) {
    length = code_point_at(text, at).bytes;
    const auto byte_id = [&](size_t i) { return byte_ids_[static_cast<uint8_t>(text[at + i])]; };
    auto has_bytes = [&] {
      for (size_t i = 0; i < length; ++i)
        if (byte_id(i) == none) return false;
      return true;
    };
    const bool was_fusing = std::exchange(fusing, false);
    const std::string_view character = text.substr(at, length);
    if (const auto id = vocabulary_.find(character)) {
      add(at, length, *id, hash_text(character));
    } else if (options_.byte_fallback && has_bytes()) {
      for (size_t i = 0; i < length; ++i) add(at + i, 1, byte_id(i), 0);
    } else if (options_.unknown) {
      fusing = options_.fuse_unknown;
      if (was_fusing) {
        symbols.back().length += static_cast<uint32_t>(length);
      } else {
        add(at, length, *options_.unknown, 0);
      }
    }
  }
  if (!symbols.empty()) symbols.back().next = none;
}

void Bpe::merge_symbols(std::string_view text, Work& work) const {
  auto& [symbols, heap, steps] = work;
  auto consider = [&](uint32_t left) {
    if (left == none || symbols[left].next == none) return false;
    const Symbol& right = symbols[symbols[left].next];
    const auto rank = merge_rank(symbols[left], right, text);
    if (rank) heap.push_back({*rank, left, symbols[left].length + right.length});
    return rank.has_value();
  };
  for (uint32_t i = 0; i + 1 < symbols.size(); ++i) consider(i);
  std::make_heap(heap.begin(), heap.end());
  steps += symbols.size();
  while (!heap.empty()) {
    ++steps;
    std::pop_heap(heap.begin(), heap.end());
    const Candidate candidate = heap.back();
    heap.pop_back();
    Symbol& left = symbols[candidate.symbol];
    // Symbols only grow. So if two neighbours still cover the bytes that they covered then, they are the same two.
    if (left.length == 0 || left.next == none || left.length + symbols[left.next].length != candidate.length) continue;
    Symbol& right = symbols[left.next];
    left.length = candidate.length;
    const std::string_view merged = text.substr(left.begin, left.length);
    left.id = merged_id(merged);
    left.hash = hash_text(merged);
    left.next = right.next;
    right.length = 0;
    if (left.next != none) symbols[left.next].previous = candidate.symbol;
    if (consider(left.previous)) std::push_heap(heap.begin(), heap.end());
    if (consider(candidate.symbol)) std::push_heap(heap.begin(), heap.end());
  }
}

void Bpe::encode(std::string_view text, std::vector<TokenSpan>& tokens, size_t* steps) const {
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_.find(text)) return tokens.push_back({*id, 0, static_cast<uint32_t>(text.size())});
  }
  Work work;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = word_end(text, begin);
    work.symbols.clear();
    split_into_characters(text, begin, end, work);
    merge_symbols(text, work);
    for (const Symbol& symbol : work.symbols) {
      if (symbol.length > 0) tokens.push_back({symbol.id, symbol.begin, symbol.begin + symbol.length});
    }
  }
  if (steps != nullptr) *steps += work.steps;
}

}  // namespace v0
}  // namespace gemloupe
