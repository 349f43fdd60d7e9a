#include "gemloupe/base/errors.h"
#include "gemloupe/run/kv_cache.h"
#include "run/tiny_model.h"

using namespace run_tests;

namespace {

at::Tensor numbered(int64_t first, int64_t count) {
  return at::arange(first * 12, (first + count) * 12, at::kFloat).view({1, count, 2, 6}).transpose(1, 2);
}

/// What a pass of `count` tokens must find: itself and what the window still reaches.
at::Tensor expected(int64_t seen, int64_t count, std::optional<int64_t> window) {
  const int64_t kept = window ? std::min(seen, *window - 1) : seen;
  return numbered(seen - kept, kept + count);
}

}  // namespace

TEST_CASE("cache: every pass finds what the window reaches, through growth and trimming") {
  for (std::optional<int64_t> window : std::vector<std::optional<int64_t>>{std::nullopt, 1, 2, 5, 300}) {
    KvCache cache(1);
    int64_t seen = 0;
    for (int64_t count : {3, 1, 1, 7, 1, 90, 1, 1, 200, 1, 1, 1}) {
      CHECK(cache.seen() == seen);
      auto [keys, values] = cache.extend(0, window, numbered(seen, count), -numbered(seen, count));
      CHECK(same_bits(keys, expected(seen, count, window)));
      CHECK(same_bits(values, -expected(seen, count, window)));
      CHECK(keys.size(2) == cache.kept(window) + count);
      cache.end_pass(count);
      seen += count;
    }
    for (int i = 0; i < 500; ++i) {
      auto [keys, values] = cache.extend(0, window, numbered(seen, 1), -numbered(seen, 1));
      if (!same_bits(keys, expected(seen, 1, window))) FAIL("token ", seen);
      cache.end_pass(1);
      ++seen;
    }
  }
}

TEST_CASE("cache: a sliding block needs no more room than its window") {
  KvCache cache(1);
  size_t largest = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    auto [keys, values] = cache.extend(0, 8, numbered(i, 1), numbered(i, 1));
    largest = std::max(largest, keys.storage().nbytes());
    cache.end_pass(1);
  }
  CHECK(largest <= 12 * sizeof(float) * 100);
}

TEST_CASE("cache: blocks do not share") {
  KvCache cache(2);
  cache.extend(0, std::nullopt, numbered(0, 2), numbered(0, 2));
  auto [keys, values] = cache.extend(1, 2, numbered(50, 2), numbered(60, 2));
  cache.end_pass(2);
  CHECK(same_bits(keys, numbered(50, 2)));
  CHECK(same_bits(cache.extend(0, std::nullopt, numbered(2, 1), numbered(2, 1)).first, numbered(0, 3)));
  CHECK(same_bits(cache.extend(1, 2, numbered(52, 1), numbered(62, 1)).second, numbered(61, 2)));
}

TEST_CASE("cache: what is written into the result persists, what is given stays as it is") {
  KvCache cache(1);
  const at::Tensor given = numbered(0, 3).contiguous(), before = given.clone();
  auto [keys, values] = cache.extend(0, std::nullopt, given, given);
  keys.select(2, 1).fill_(-1);
  CHECK(same_bits(given, before));
  cache.end_pass(3);
  auto [more, _] = cache.extend(0, std::nullopt, numbered(3, 1), numbered(3, 1));
  CHECK(more.select(2, 1).eq(-1).all().item<bool>());
  CHECK(same_bits(more.narrow(2, 2, 2), numbered(2, 2)));
}

TEST_CASE("cache: an assignment persists, and what it returns is live") {
  KvCache cache(1);
  cache.extend(0, 4, numbered(0, 3), numbered(0, 3));
  const at::Tensor mine = at::full({1, 2, 3, 6}, 5.0f);
  const at::Tensor live = cache.replace(0, /*is_keys=*/false, mine);
  CHECK(same_bits(live, mine));
  live.select(2, 2).fill_(7);
  CHECK(mine.eq(5).all().item<bool>());
  cache.end_pass(3);
  auto [keys, values] = cache.extend(0, 4, numbered(3, 1), numbered(3, 1));
  CHECK(same_bits(keys, numbered(0, 4)));
  CHECK(values.narrow(2, 0, 2).eq(5).all().item<bool>());
  CHECK(values.select(2, 2).eq(7).all().item<bool>());
}

TEST_CASE("cache: a pass that left a block out, or was broken off, is not passed over in silence") {
  KvCache cache(2);
  cache.extend(0, std::nullopt, numbered(0, 2), numbered(0, 2));
  cache.end_pass(2);
  CHECK_NOTHROW(cache.extend(0, std::nullopt, numbered(2, 1), numbered(2, 1)));
  CHECK_THROWS_AS(cache.extend(1, std::nullopt, numbered(2, 1), numbered(2, 1)), CannotSkip);
  CHECK_THROWS_AS(cache.extend(0, std::nullopt, numbered(2, 1), numbered(2, 1)), CannotSkip);
}
