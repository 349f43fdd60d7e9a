#include "gemloupe/text/vocabulary.h"

#include <bit>
#include <cstring>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/printable.h"

namespace gemloupe {
inline namespace v0 {

namespace {

constexpr uint64_t odd = 0x9E3779B97F4A7C15u;

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * odd;
  return hash ^ (hash >> 29);
}

uint64_t load(const char* bytes, size_t count) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, count);
  return word;
}

}  // namespace

uint64_t hash_text(std::string_view text) {
  const char* bytes = text.data();
  size_t left = text.size();
  uint64_t hash = left * odd;
  for (; left > 8; left -= 8, bytes += 8) hash = mix(hash, load(bytes, 8));
  // The rest in two loads of a fixed width that may overlap: a memcpy of a variable width is a call.
  if (left >= 4) {
    hash = mix(hash, load(bytes, 4) | load(bytes + left - 4, 4) << 32);
  } else if (left > 0) {
    const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])); };
    hash = mix(hash, byte(0) | byte(left / 2) << 8 | byte(left - 1) << 16);
  }
  return mix(hash, left);
}

void Vocabulary::reserve(size_t tokens, size_t bytes) {
  arena_.reserve(bytes);
  entries_.reserve(tokens);
  entry_of_id_.reserve(tokens);
}

void Vocabulary::add(std::string_view token, int64_t id) {
  check(id >= 0 && id < most_ids, "the ids of a vocabulary are in bounds");
  check(arena_.size() + token.size() <= UINT32_MAX, "the texts of a vocabulary take less than 4 GiB");
  if (static_cast<size_t>(id) >= entry_of_id_.size()) entry_of_id_.resize(id + 1, empty);
  entry_of_id_[id] = static_cast<uint32_t>(entries_.size());
  entries_.push_back({static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(token.size()),
                      static_cast<uint32_t>(id), static_cast<uint32_t>(hash_text(token))});
  arena_.append(token);
}

size_t Vocabulary::slot_of(std::string_view token, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.entry == empty || (slot.hash == hash && text(entries_[slot.entry]) == token)) return at;
  }
}

void Vocabulary::index() {
  slots_.assign(std::bit_ceil(entries_.size() * 2 + 1), {});
  size_ = 0;
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    // The table is larger than the caches: ask for a slot well before it is needed.
    constexpr uint32_t ahead = 16;
    if (i + ahead < entries_.size()) __builtin_prefetch(&slots_[entries_[i + ahead].hash & (slots_.size() - 1)], 1);
    Slot& slot = slots_[slot_of(text(entries_[i]), entries_[i].hash)];
    size_ += slot.entry == empty;
    slot = {entries_[i].hash, i};
  }
}

std::optional<uint32_t> Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[slot_of(token, static_cast<uint32_t>(hash_text(token)))];
  if (slot.entry == empty) return std::nullopt;
  return entries_[slot.entry].id;
}

std::optional<std::string_view> Vocabulary::token(int64_t id) const {
  if (id < 0 || id >= end_id() || entry_of_id_[id] == empty) return std::nullopt;
  return text(entries_[entry_of_id_[id]]);
}

}  // namespace v0
}  // namespace gemloupe
