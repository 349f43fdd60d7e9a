// x · weightᵀ as tiles of dot products. Both matrices are read along their rows, as they lie: nothing is packed.
//
// A tile keeps a sum in registers for each of its rows of x and of the weight, so that what is loaded once is used
// several times. A sum goes through a row front to back, whatever the tile: a row's bits depend neither on how many
// rows there are nor on which thread has them. The rows of weight after the tile's are fetched while it computes, in
// the order in which they lie in memory: one stream, which is what memory gives fastest.
#pragma once

#include "gemloupe/ops/kernels/linear_loops.h"
#include "gemloupe/ops/kernels/simd.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

/// What a register of each side is, and how a sum takes one in.
template <class X, class W>
struct Dot;

template <>
struct Dot<Bfloat16, Bfloat16> {
  static constexpr int64_t kWide = kPairs;
  using Left = Bits;
  using Right = Bits;
  static GEMLOUPE_INLINE Left left(const Bfloat16* x, int64_t count) {
    return count >= kWide ? load_pairs(x) : load_pairs(x, count);
  }
  static GEMLOUPE_INLINE Right right(const Bfloat16* w, int64_t count) { return left(w, count); }
  static GEMLOUPE_INLINE Float add(Float sum, Left x, Right w) { return add_products(sum, x, w); }
};

struct TwoFloats {
  Float first, second;
};

/// x is in the order of `split_pairs`, padded with zeros.
template <>
struct Dot<float, Bfloat16> {
  static constexpr int64_t kWide = kPairs;
  using Left = TwoFloats;
  using Right = TwoFloats;
  static GEMLOUPE_INLINE Left left(const float* x, int64_t) { return {load(x), load(x + kLanes)}; }
  static GEMLOUPE_INLINE Right right(const Bfloat16* w, int64_t count) {
    const Bits pairs = count >= kWide ? load_pairs(w) : load_pairs(w, count);
    return {first_of(pairs), second_of(pairs)};
  }
  static GEMLOUPE_INLINE Float add(Float sum, Left x, Right w) {
    return fma(x.second, w.second, fma(x.first, w.first, sum));
  }
};

template <>
struct Dot<float, float> {
  static constexpr int64_t kWide = kLanes;
  using Left = Float;
  using Right = Float;
  static GEMLOUPE_INLINE Left left(const float* x, int64_t count) { return load_up_to(x, count); }
  static GEMLOUPE_INLINE Right right(const float* w, int64_t count) { return load_up_to(w, count); }
  static GEMLOUPE_INLINE Float add(Float sum, Left x, Right w) { return fma(x, w, sum); }
};

/// Brings the lines of a matrix into the cache, in the order in which they lie, some at each step of a tile.
struct Fetch {
  const char* next;
  const char* end;
  GEMLOUPE_INLINE void lines(int count) {
    for (int i = 0; i < count && next < end; ++i, next += 64) __builtin_prefetch(next, 0, 2);
  }
};

template <int Xs, int Ws, class X, class W>
GEMLOUPE_INLINE void dot_tile(const X* x, int64_t x_stride, const W* w, int64_t w_stride, int64_t count, Fetch fetch,
                              float (&out)[Xs][Ws]) {
  using D = Dot<X, W>;
  Float sums[Xs][Ws];
#pragma GCC unroll 8
  for (int i = 0; i < Xs; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Ws; ++j) sums[i][j] = broadcast(0);
  auto step = [&](int64_t at, int64_t left) __attribute__((always_inline)) {
    typename D::Right rights[Ws];
#pragma GCC unroll 8
    for (int j = 0; j < Ws; ++j) rights[j] = D::right(w + j * w_stride + at, left);
#pragma GCC unroll 8
    for (int i = 0; i < Xs; ++i) {
      const auto l = D::left(x + i * x_stride + at, left);
#pragma GCC unroll 8
      for (int j = 0; j < Ws; ++j) sums[i][j] = D::add(sums[i][j], l, rights[j]);
    }
  };
  int64_t at = 0;
  for (; at + D::kWide <= count; at += D::kWide) {
    fetch.lines(Ws);
    step(at, D::kWide);
  }
  if (at < count) step(at, count - at);
#pragma GCC unroll 8
  for (int i = 0; i < Xs; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j + 4 <= Ws; j += 4)
      sums_of(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3], out[i] + j);
#pragma GCC unroll 8
    for (int j = Ws / 4 * 4; j < Ws; ++j) out[i][j] = sum_of(sums[i][j]);
  }
}

/// A tile's sums to rows of `out`, `stride` apart: rounded together, a store for each.
template <int Xs, int Ws>
GEMLOUPE_INLINE void put_tile(const float (&sums)[Xs][Ws], float* out, int64_t stride) {
  for (int i = 0; i < Xs; ++i) memcpy(out + i * stride, sums[i], sizeof sums[i]);
}

template <int Xs, int Ws>
GEMLOUPE_INLINE void put_tile(const float (&sums)[Xs][Ws], Bfloat16* out, int64_t stride) {
  constexpr int64_t kAll = Xs * Ws;
  Bfloat16 rounded[kAll];
#pragma GCC unroll 8
  for (int64_t at = 0; at < kAll; at += kLanes)
    store_up_to(rounded + at, load_up_to(&sums[0][0] + at, kAll - at), kAll - at);
  for (int i = 0; i < Xs; ++i) memcpy(out + i * stride, rounded + i * Ws, sizeof(Bfloat16) * Ws);
}

template <int Xs, int Ws, class X, class W, class Out>
void tile_into(const Product<X, W, Out>& p, int64_t x_stride, int64_t row, int64_t column, Fetch fetch) {
  float sums[Xs][Ws];
  dot_tile<Xs, Ws>(p.x + row * x_stride, x_stride, p.weight + column * p.in, p.in, p.in, fetch, sums);
  put_tile(sums, p.out + row * p.width + column, p.width);
}

/// `count` rows of x from `row` on, in as few tiles of at most Xs rows as there can be, times Ws rows of the weight.
/// The tiles are alike, so the last may have rows of the one before it, which come out the same: a mixture of sizes,
/// and tiles of few sums, each of which waits for the one before it, take longer.
template <int Xs, int Ws, class X, class W, class Out>
void rows_into(const Product<X, W, Out>& p, int64_t x_stride, int64_t row, int64_t count, int64_t column, Fetch fetch) {
  const int64_t tiles = (count + Xs - 1) / Xs;
  if constexpr (Xs > 1)
    if ((count + tiles - 1) / tiles < Xs) return rows_into<Xs - 1, Ws>(p, x_stride, row, count, column, fetch);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    tile_into<Xs, Ws>(p, x_stride, row + smaller(tile * Xs, count - Xs), column, fetch);
    fetch.end = fetch.next;  // once
  }
}

/// As many sums as there are registers for, beside what is loaded.
constexpr int kTileXs = kLanes == 16 ? 6 : 2, kTileWs = 4;

/// Rows of x that stay in the second level of the cache while the weight passes.
constexpr int64_t kCached = int64_t{512} << 10;

/// From a row of x to the next: one in the order of `split_pairs` is padded.
template <class X, class W>
constexpr int64_t x_stride_of(int64_t in) {
  constexpr int64_t kWide = Dot<X, W>::kWide;
  return sizeof(X) > sizeof(W) ? (in + kWide - 1) / kWide * kWide : in;
}

template <class X, class W, class Out>
void multiply(const Product<X, W, Out>& p, int64_t begin, int64_t end) {
  constexpr int kWs = kTileWs;
  const int64_t x_stride = x_stride_of<X, W>(p.in);
  const int64_t block = larger(kTileXs, kCached / larger(1, x_stride * int64_t{sizeof(X)}) / kTileXs * kTileXs);
  for (int64_t first = 0; first < p.rows; first += block) {
    const int64_t last = smaller(p.rows, first + block);
    const auto* behind = reinterpret_cast<const char*>(p.weight + end * p.in);
    int64_t column = begin;
    auto fetch = [&](int64_t ws) {
      const auto* next = reinterpret_cast<const char*>(p.weight + (column + ws) * p.in);
      const auto* until = next + ws * p.in * int64_t{sizeof(W)};
      return Fetch{next, until < behind ? until : behind};
    };
    if (last - first == 1)  // more rows of the weight at once: a sum waits for the one before it
      for (; column + 2 * kWs <= end; column += 2 * kWs)
        rows_into<1, 2 * kWs>(p, x_stride, first, 1, column, fetch(2 * kWs));
    for (; column + kWs <= end; column += kWs)
      rows_into<kTileXs, kWs>(p, x_stride, first, last - first, column, fetch(kWs));
    for (; column < end; ++column) rows_into<kTileXs, 1>(p, x_stride, first, last - first, column, fetch(1));
  }
}

}  // namespace
}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
