// Attention over blocks of rows, whose scores stay in the cache between the stages.
//
// Scores and pattern are rounded to the tensors' dtype where the named values are, and a stage does the same to a row
// whether it finds it in the cache or in a tensor: reading or writing the values between the stages changes no bit.
// Unlike flash attention's, the softmax therefore sees whole rows; only keys that a block's queries may go to are
// visited.
#pragma once

#include "gemloupe/ops/kernels/attention_loops.h"
#include "gemloupe/ops/kernels/dot_tile.inl"
#include "gemloupe/ops/kernels/simd.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

constexpr int64_t kSums = 4;  // of a softmax, so that none waits for the one before it
constexpr int64_t kWideKeys = kSums * kLanes;
constexpr int kTileRows = kTileXs;

/// finfo(T).min, what the additive mask has: as a float.
template <class T>
constexpr float kLowest = -3.3895313892515355e38F;
template <>
constexpr float kLowest<float> = -3.4028234663852886e38F;

GEMLOUPE_INLINE Float rounded_to(Float x, const float*) {
  return x;
}
GEMLOUPE_INLINE Float rounded_to(Float x, const Bfloat16*) {
  Bfloat16 out[kLanes];
  store(out, x);
  return load(out);
}

GEMLOUPE_INLINE int64_t padded_keys(int64_t keys) {
  return (keys + kWideKeys - 1) / kWideKeys * kWideKeys;
}

/// A block of rows: [rows][padded keys] floats, which hold scores, then their exponentials, then the pattern. Columns
/// outside [first, end), multiples of kWideKeys, are not touched.
template <class T>
struct Block {
  const Attention<T>& a;
  int64_t begin, rows, first, end;
  float* numbers;
  int64_t stride;

  float* row(int64_t r) const { return numbers + r * stride; }
  int64_t query(int64_t r) const { return (begin + r) / a.group; }
  int64_t head(int64_t r) const { return (begin + r) % a.group; }
  /// Of [group, tokens, keys].
  int64_t stored(int64_t r) const { return (head(r) * a.tokens + query(r)) * a.keys_count; }
  int64_t last() const { return smaller(end, a.keys_count); }
};

template <class T>
Block<T> block_of(const Attention<T>& a, int64_t begin, int64_t end, float* scratch) {
  Block<T> b{a, begin, end - begin, a.keys_count, 0, scratch, padded_keys(a.keys_count)};
  for (int64_t r = 0; r < b.rows; ++r) {
    const Reach& reach = a.reaches[b.query(r)];
    const bool nowhere = reach.first >= reach.end;
    b.first = nowhere ? 0 : smaller(b.first, reach.first);
    b.end = nowhere ? a.keys_count : larger(b.end, reach.end);
  }
  b.first = b.first / kWideKeys * kWideKeys;
  b.end = padded_keys(b.end);
  return b;
}

// ------------------------------------------------------------------------------------------------------------- scores

template <int Rows, class T>
void dot_keys(const Block<T>& b, const T* queries, int64_t row) {
  const Attention<T>& a = b.a;
  const Fetch none{nullptr, nullptr};
  int64_t key = b.first;
  for (; key + 4 <= b.last(); key += 4) {
    float sums[Rows][4];
    dot_tile<Rows, 4>(queries + row * a.key_dim, a.key_dim, a.keys + key * a.key_stride, a.key_stride, a.key_dim, none,
                      sums);
    for (int r = 0; r < Rows; ++r) memcpy(b.row(row + r) + key, sums[r], sizeof sums[r]);
  }
  for (; key < b.last(); ++key) {
    float sums[Rows][1];
    dot_tile<Rows, 1>(queries + row * a.key_dim, a.key_dim, a.keys + key * a.key_stride, a.key_stride, a.key_dim, none,
                      sums);
    for (int r = 0; r < Rows; ++r) b.row(row + r)[key] = sums[r][0];
  }
}

template <int Rows, class T>
void dot_rows(const Block<T>& b, const T* queries, int64_t row) {
  if constexpr (Rows > 1)
    if (b.rows - row < Rows) return dot_rows<Rows - 1>(b, queries, row);
  dot_keys<Rows>(b, queries, row);
}

/// cap · tanh(x / cap); what is lost near 0 is lost of the cap.
GEMLOUPE_INLINE Float capped(Float x, float cap) {
  const Float power = exp(x * broadcast(2 / cap));
  return broadcast(cap) - broadcast(2 * cap) / (power + broadcast(1));
}

template <class T>
void finish_scores(const Block<T>& b, int64_t r) {
  float* row = b.row(r);
  const Float scale = broadcast(b.a.scale);
  const Reach& reach = b.a.reaches[b.query(r)];
  for (int64_t key = b.first; key < b.end; key += kLanes) {
    Float x = load(row + key) * scale;
    if (b.a.cap != 0) x = capped(x, b.a.cap);
    store(row + key, rounded_to(x, static_cast<const T*>(nullptr)));
  }
  const float closed = kLowest<T>;
  const int64_t end = larger(reach.end, b.first);
  for (int64_t key = b.first; key < smaller(reach.first, b.end); ++key) row[key] = closed;
  for (int64_t key = end; key < b.end; ++key) row[key] = closed;
  if (reach.open)
    for (int64_t key = reach.first; key < reach.end; ++key)
      if (!reach.open[key]) row[key] = closed;
}

template <class T>
void score(const Block<T>& b, T* queries) {
  const Attention<T>& a = b.a;
  for (int64_t r = 0; r < b.rows; ++r)
    memcpy(queries + r * a.key_dim, a.queries + b.query(r) * a.query_stride + b.head(r) * a.query_head_stride,
           sizeof(T) * static_cast<size_t>(a.key_dim));
  for (int64_t row = 0; row < b.rows; row += kTileRows) dot_rows<kTileRows>(b, static_cast<const T*>(queries), row);
  for (int64_t r = 0; r < b.rows; ++r) finish_scores(b, r);
}

// ------------------------------------------------------------------------------------------------------------ softmax

/// A row without numbers behind its end: e^x there is 0 beside any score.
template <class T>
void softmax(const Block<T>& b, int64_t r) {
  float* row = b.row(r);
  for (int64_t key = b.last(); key < b.end; ++key) row[key] = -__builtin_inff();
  Float most[kSums], sums[kSums];
  for (auto& m : most) m = broadcast(-__builtin_inff());
  for (int64_t key = b.first; key < b.end; key += kWideKeys)
    for (int64_t s = 0; s < kSums; ++s) most[s] = max(load(row + key + s * kLanes), most[s]);
  const Float top = broadcast(max_of(max(max(most[0], most[1]), max(most[2], most[3]))));
  for (auto& s : sums) s = broadcast(0);
  for (int64_t key = b.first; key < b.end; key += kWideKeys)
    for (int64_t s = 0; s < kSums; ++s) {
      const Float power = exp(load(row + key + s * kLanes) - top);
      store(row + key + s * kLanes, power);
      sums[s] = sums[s] + power;
    }
  const Float sum = broadcast(sum_of((sums[0] + sums[1]) + (sums[2] + sums[3])));
  for (int64_t key = b.first; key < b.end; key += kLanes)
    store(row + key, rounded_to(load(row + key) / sum, static_cast<const T*>(nullptr)));
}

// ------------------------------------------------------------------------------------------------------------- mixing

GEMLOUPE_INLINE TwoFloats load_two(const float* from) {
  return {load(from), load(from + kLanes)};
}
GEMLOUPE_INLINE TwoFloats load_two(const Bfloat16* from) {
  const Bits pairs = load_pairs(from);
  return {first_of(pairs), second_of(pairs)};
}
GEMLOUPE_INLINE void store_two(float* to, Float first, Float second) {
  store(to, first);
  store(to + kLanes, second);
}
GEMLOUPE_INLINE void store_two(Bfloat16* to, Float first, Float second) {
  Bfloat16 evens[kLanes], odds[kLanes];
  store(evens, first);
  store(odds, second);
  for (int64_t i = 0; i < kLanes; ++i) {
    to[2 * i] = evens[i];
    to[2 * i + 1] = odds[i];
  }
}

/// Wide · 2 · kLanes columns of the values, times the rows' patterns; `width` of them are there.
template <int Rows, int Wide, class T>
GEMLOUPE_INLINE void mix_columns(const Block<T>& b, int64_t row, int64_t first, int64_t end, const T* values,
                                 int64_t stride, T* out) {
  Float sums[Rows][Wide][2];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int w = 0; w < Wide; ++w) sums[r][w][0] = sums[r][w][1] = broadcast(0);
  for (int64_t key = first; key < end; ++key) {
    TwoFloats v[Wide];
#pragma GCC unroll 8
    for (int w = 0; w < Wide; ++w) v[w] = load_two(values + key * stride + w * 2 * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Float p = broadcast(b.row(row + r)[key]);
#pragma GCC unroll 8
      for (int w = 0; w < Wide; ++w) {
        sums[r][w][0] = fma(p, v[w].first, sums[r][w][0]);
        sums[r][w][1] = fma(p, v[w].second, sums[r][w][1]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int w = 0; w < Wide; ++w) store_two(out + (r * Wide + w) * 2 * kLanes, sums[r][w][0], sums[r][w][1]);
}

/// The same for `width` columns, at most a register of them.
template <int Rows, class T>
void mix_rest(const Block<T>& b, int64_t row, int64_t first, int64_t end, const T* values, int64_t width, T* out,
              int64_t out_stride) {
  Float sums[Rows];
  for (auto& sum : sums) sum = broadcast(0);
  for (int64_t key = first; key < end; ++key) {
    const Float v = load_up_to(values + key * b.a.value_stride, width);
    for (int r = 0; r < Rows; ++r) sums[r] = fma(broadcast(b.row(row + r)[key]), v, sums[r]);
  }
  for (int r = 0; r < Rows; ++r) store_up_to(out + r * out_stride, sums[r], width);
}

/// The keys of which some row of the tile has more than nothing: what is closed to all is not looked at, be it NaN.
template <class T>
void narrow(const Block<T>& b, int64_t row, int64_t rows, int64_t& first, int64_t& end) {
  int64_t from = end, to = first;
  for (int64_t r = row; r < row + rows; ++r) {
    const float* p = b.row(r);
    int64_t a = first, z = end;
    while (a < from && p[a] == 0) ++a;
    while (z > to && p[z - 1] == 0) --z;
    from = smaller(from, a);
    to = larger(to, z);
  }
  first = from;
  end = larger(to, from);
}

template <int Rows, class T>
void mix_rows(const Block<T>& b, int64_t row) {
  if constexpr (Rows > 1)
    if (b.rows - row < Rows) return mix_rows<Rows - 1>(b, row);
  constexpr int kWide = kLanes == 16 ? 2 : 1;
  constexpr int64_t kColumns = kWide * 2 * kLanes;
  const Attention<T>& a = b.a;
  int64_t first = b.first, end = b.last();
  narrow(b, row, Rows, first, end);
  for (int64_t column = 0; column < a.value_dim; column += kColumns) {
    const int64_t width = smaller(kColumns, a.value_dim - column);
    T made[Rows * kColumns];
    if (width == kColumns) {
      mix_columns<Rows, kWide>(b, row, first, end, a.values + column, a.value_stride, made);
    } else {
      for (int64_t c = 0; c < width; c += kLanes)
        mix_rest<Rows>(b, row, first, end, a.values + column + c, smaller(kLanes, width - c), made + c, kColumns);
    }
    for (int r = 0; r < Rows; ++r)
      memcpy(a.out + b.query(row + r) * a.out_stride + b.head(row + r) * a.value_dim + column, made + r * kColumns,
             sizeof(T) * static_cast<size_t>(width));
  }
}

// ------------------------------------------------------------------------------------------------------------- stages

template <class T>
void load_rows(const Block<T>& b, const T* from) {
  for (int64_t r = 0; r < b.rows; ++r)
    for (int64_t key = b.first; key < b.last(); key += kLanes)
      store(b.row(r) + key, load_up_to(from + b.stored(r) + key, b.last() - key));
}

template <class T>
void store_rows(const Block<T>& b, T* to, float closed) {
  for (int64_t r = 0; r < b.rows; ++r) {
    T* row = to + b.stored(r);
    for (int64_t key = 0; key < b.a.keys_count; key += kLanes) {
      const Float x = key >= b.first && key < b.end ? load(b.row(r) + key) : broadcast(closed);
      store_up_to(row + key, x, b.a.keys_count - key);
    }
  }
}

template <class T>
void attend(const Attention<T>& a, Stages stages, int64_t begin, int64_t end, float* scratch) {
  Block<T> b = block_of(a, begin, end, scratch);
  if (stages.scores) {
    score(b, reinterpret_cast<T*>(scratch + b.rows * b.stride));
    if (a.scores) store_rows(b, a.scores, kLowest<T>);
  } else {
    b.first = 0, b.end = b.stride;  // a tensor's rows may hold anything anywhere
    load_rows(b, static_cast<const T*>(stages.softmax ? a.scores : a.pattern));
  }
  if (stages.softmax) {
    for (int64_t r = 0; r < b.rows; ++r) softmax(b, r);
    if (a.pattern) store_rows(b, a.pattern, 0);
  }
  if (stages.mix)
    for (int64_t row = 0; row < b.rows; row += kTileRows) mix_rows<kTileRows>(b, row);
}

constexpr AttentionLoops kAttentionLoops = {attend<Bfloat16>, attend<float>, kTileRows, kWideKeys};

}  // namespace
}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
