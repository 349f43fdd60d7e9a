// The tokens of a model and their ids, both ways: 262,144 of them, built in a few milliseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gemloupe {
inline namespace v0 {

/// A hash of all 64 bits: two texts of a vocabulary that share one do not happen, by chance.
uint64_t hash_text(std::string_view text);

/// All texts lie in one arena, and an open-addressing table of indices finds them: no allocation per token.
class Vocabulary {
 public:
  void reserve(size_t tokens, size_t bytes);

  static constexpr int64_t most_ids = int64_t{1} << 24;  ///< 64 times Gemma's: beyond it lies a broken file

  /// Two texts may share an id; a text that comes again takes the later id. Ids are below most_ids.
  void add(std::string_view token, int64_t id);

  /// Makes find() work: to be called once, after the last token.
  void index();

  std::optional<uint32_t> find(std::string_view token) const;
  std::optional<std::string_view> token(int64_t id) const;

  size_t size() const { return size_; }                                         ///< how many tokens
  int64_t end_id() const { return static_cast<int64_t>(entry_of_id_.size()); }  ///< one past the largest id

  /// Every token.
  template <typename Visit>
  void each(Visit visit) const {
    for (const Entry& entry : entries_) visit(text(entry), entry.id);
  }

 private:
  struct Entry {
    uint32_t offset, length, id, hash;
  };
  struct Slot {
    uint32_t hash = 0, entry = empty;
  };
  static constexpr uint32_t empty = UINT32_MAX;

  std::string_view text(const Entry& entry) const { return {arena_.data() + entry.offset, entry.length}; }
  size_t slot_of(std::string_view token, uint32_t hash) const;

  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> entry_of_id_;
  size_t size_ = 0;
  std::vector<Slot> slots_;  // a power of two, at most half of them taken
};

}  // namespace v0
}  // namespace gemloupe
