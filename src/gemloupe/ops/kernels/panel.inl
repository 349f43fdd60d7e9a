// x · weightᵀ for more than a few rows of x where registers are few and narrow: with eight floats in each of sixteen, a
// tile of dot_tile.inl has no room to widen the weight and compute at once.
//
// Some rows of the weight are widened into a panel, once for a block of rows of x, and the tiles read that: twelve
// sums, three rows of x, one of the weight, a load for each product and three quarters (K. Goto and R. van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication", 2008). A panel goes as deep into the rows as the caches allow,
// and the tiles' sums wait meanwhile as registers: each goes through its row front to back, as in dot_tile.inl, and has
// the same bits.
#pragma once

#include "gemloupe/ops/kernels/dot_tile.inl"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

constexpr int kPanelXs = 3, kPanelWs = 4;
constexpr int64_t kPanelRows = 96, kPanelColumns = 8, kPanelDepth = 512;  ///< of x; of the weight; of both
constexpr int64_t kPanelStride = kPanelDepth + 2 * kLanes;                ///< rows in other sets of the cache

struct Panel {
  alignas(64) float weight[kPanelColumns][kPanelStride];
  Float sums[kPanelRows / kPanelXs][kPanelColumns / kPanelWs][kPanelXs][kPanelWs];
};

/// Brings what the next panel is made of into the cache, some lines with each tile.
struct PanelFetch {
  const char* from;
  int64_t stride, row_bytes, rows, at = 0;
  GEMLOUPE_INLINE void lines(int64_t count) {
    for (; count > 0 && rows > 0; --count) {
      __builtin_prefetch(from + at, 0, 2);
      if ((at += 64) < row_bytes) continue;
      at = 0;
      from += stride;
      --rows;
    }
  }
};

GEMLOUPE_INLINE void widen(const Bfloat16* from, int64_t count, float* to) {
  for (int64_t at = 0; at < count; at += kPairs) {
    const TwoFloats two = Dot<float, Bfloat16>::right(from + at, count - at);
    store(to + at, two.first);
    store(to + at + kLanes, two.second);
  }
}
GEMLOUPE_INLINE void widen(const float* from, int64_t count, float* to) {
  for (int64_t at = 0; at < count; at += kLanes) store(to + at, load_up_to(from + at, count - at));
}

/// The sums of a tile, further by `count` numbers.
inline void panel_tile(const float* x, int64_t x_stride, const float* w, int64_t count,
                       Float (&out)[kPanelXs][kPanelWs]) {
  Float sums[kPanelXs][kPanelWs];
#pragma GCC unroll 8
  for (int i = 0; i < kPanelXs; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kPanelWs; ++j) sums[i][j] = out[i][j];
  auto step = [&](int64_t at, auto load_x) __attribute__((always_inline)) {
    Float l[kPanelXs];
#pragma GCC unroll 8
    for (int i = 0; i < kPanelXs; ++i) l[i] = load_x(x + i * x_stride + at);
#pragma GCC unroll 8
    for (int j = 0; j < kPanelWs; ++j) {
      const Float r = load(w + j * kPanelStride + at);
#pragma GCC unroll 8
      for (int i = 0; i < kPanelXs; ++i) sums[i][j] = fma(l[i], r, sums[i][j]);
    }
  };
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes)
    step(
        at, [](const float* from) __attribute__((always_inline)) { return load(from); });
  if (at < count)
    step(
        at, [&](const float* from) __attribute__((always_inline)) { return load(from, count - at); });
#pragma GCC unroll 8
  for (int i = 0; i < kPanelXs; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kPanelWs; ++j) out[i][j] = sums[i][j];
}

/// The first row of a tile among `rows`: the last one may have rows of the one before it, which come out the same.
GEMLOUPE_INLINE int64_t row_of(int64_t tile, int64_t rows) {
  return smaller(tile * kPanelXs, rows - kPanelXs);
}

template <class Out>
void put_panel(const Panel& panel, int64_t rows, int64_t columns, Out* out, int64_t stride) {
  for (int64_t tile = 0; tile * kPanelXs < rows; ++tile)
    for (int64_t group = 0; group * kPanelWs < columns; ++group) {
      float sums[kPanelXs][kPanelWs];
      for (int i = 0; i < kPanelXs; ++i) {
        const Float(&of)[kPanelWs] = panel.sums[tile][group][i];
        sums_of(of[0], of[1], of[2], of[3], sums[i]);
      }
      Out* to = out + row_of(tile, rows) * stride + group * kPanelWs;
      if (group * kPanelWs + kPanelWs <= columns) {
        put_tile(sums, to, stride);
        continue;
      }
      for (int i = 0; i < kPanelXs; ++i)
        for (int64_t j = group * kPanelWs; j < columns; ++j) {
          const float one[1][1] = {{sums[i][j % kPanelWs]}};
          put_tile(one, to + i * stride + j % kPanelWs, stride);
        }
    }
}

/// Columns [column, column + columns) of rows [row, row + rows); those up to `end` come next.
template <class W, class Out>
void multiply_panel(const Product<float, W, Out>& p, int64_t row, int64_t rows, int64_t column, int64_t columns,
                    int64_t end) {
  const int64_t x_stride = x_stride_of<float, W>(p.in), tiles = (rows + kPanelXs - 1) / kPanelXs;
  const int64_t groups = (columns + kPanelWs - 1) / kPanelWs;
  auto fetch_of = [&](int64_t first, int64_t last, int64_t from) {
    const int64_t depth = smaller(kPanelDepth, p.in - from);
    return PanelFetch{reinterpret_cast<const char*>(p.weight + first * p.in + from), p.in * int64_t{sizeof(W)},
                      depth * int64_t{sizeof(W)}, smaller(last, end) - first};
  };
  Panel panel;
  memset(panel.sums, 0, static_cast<size_t>(tiles) * sizeof panel.sums[0]);
  for (int64_t from = 0; from < p.in; from += kPanelDepth) {
    const int64_t depth = smaller(kPanelDepth, p.in - from), next = from + kPanelDepth;
    for (int64_t c = 0; c < groups * kPanelWs; ++c)  // the last ones may be there twice
      widen(p.weight + (column + smaller(c, columns - 1)) * p.in + from, depth, panel.weight[c]);
    PanelFetch fetch = next < p.in ? fetch_of(column, column + columns, next)
                                   : fetch_of(column + columns, column + columns + kPanelColumns, 0);
    const int64_t lines = kPanelColumns * kPanelDepth * int64_t{sizeof(W)} / 64 / (tiles * groups) + 1;
    for (int64_t tile = 0; tile < tiles; ++tile)
      for (int64_t group = 0; group < groups; ++group) {
        fetch.lines(lines);
        panel_tile(p.x + (row + row_of(tile, rows)) * x_stride + from, x_stride, panel.weight[group * kPanelWs],
                   x_stride_of<float, W>(depth), panel.sums[tile][group]);
      }
  }
  put_panel(panel, rows, columns, p.out + row * p.width + column, p.width);
}

/// In blocks of rows that are alike: none has fewer than a tile.
template <class W, class Out>
void multiply_panels(const Product<float, W, Out>& p, int64_t begin, int64_t end) {
  const int64_t blocks = (p.rows + kPanelRows - 1) / kPanelRows;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t row = p.rows * block / blocks, rows = p.rows * (block + 1) / blocks - row;
    for (int64_t column = begin; column < end; column += kPanelColumns)
      multiply_panel(p, row, rows, column, smaller(kPanelColumns, end - column), end);
  }
}

}  // namespace
}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
