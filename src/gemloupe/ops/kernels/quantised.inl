// x · weightᵀ where the weight is blocks of few bits.
//
// As in dot_tile.inl a tile keeps a sum for each of its rows of x and of the weight, goes through them front to back
// and fetches the rows of weight behind it. Here a block of each row of the weight is unpacked on the way, once for all
// rows of x, and x stays what it is: with two products of 16 floats a cycle the conversion of bytes to floats costs no
// more than that of x to integers, as ggml has it, and its sums; and nothing is lost.
#pragma once

#include "gemloupe/ops/kernels/dot_tile.inl"
#include "gemloupe/ops/kernels/quantised_formats.inl"
#include "gemloupe/ops/kernels/quantised_loops.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

/// The weights from `at` on, all of a group, as a product takes them.
template <class Block>
GEMLOUPE_INLINE Float weights_of(const Unpacked<Block>& unpacked, int64_t at, int64_t group) {
  const Float bytes = floats_of(unpacked.bytes + at), scale = broadcast(unpacked.scale[group]);
  if constexpr (Block::kLeast)
    return product_less(bytes, scale, broadcast(unpacked.least[group]));
  else
    return bytes * scale;
}

template <int Xs, int Ws, class Block>
void quantised_tile(const float* x, const Block* w, int64_t blocks, Fetch fetch, float (&out)[Xs][Ws]) {
  const int64_t in = blocks * Block::kElements;
  constexpr int kLines = (Ws * int{sizeof(Block)} + 63) / 64;
  Float sums[Xs][Ws];
#pragma GCC unroll 16
  for (int i = 0; i < Xs; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Ws; ++j) sums[i][j] = broadcast(0);
  for (int64_t block = 0; block < blocks; ++block, ++w, x += Block::kElements) {
    fetch.lines(kLines);
    Unpacked<Block> unpacked[Ws];
#pragma GCC unroll 8
    for (int j = 0; j < Ws; ++j) w[j * blocks].unpack(unpacked[j]);
    for (int group = 0; group < Block::kElements / Block::kGroup; ++group)
#pragma GCC unroll 8
      for (int64_t at = group * Block::kGroup, end = at + Block::kGroup; at < end; at += kLanes) {
        Float weights[Ws];
#pragma GCC unroll 8
        for (int j = 0; j < Ws; ++j) weights[j] = weights_of(unpacked[j], at, group);
#pragma GCC unroll 8
        for (int i = 0; i < Xs; ++i) {
          const Float one = load(x + i * in + at);
#pragma GCC unroll 8
          for (int j = 0; j < Ws; ++j) sums[i][j] = fma(weights[j], one, sums[i][j]);
        }
      }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Xs; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j + 4 <= Ws; j += 4)
      sums_of(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3], out[i] + j);
#pragma GCC unroll 8
    for (int j = Ws / 4 * 4; j < Ws; ++j) out[i][j] = sum_of(sums[i][j]);
  }
}

/// All rows of x times Ws rows of the weight, in tiles of Xs; the last may have rows of the one before it.
template <int Xs, int Ws, class Block, class Out>
void quantised_columns(const QuantisedProduct<Out>& p, int64_t column, int64_t end) {
  const int64_t blocks = p.in / Block::kElements, tiles = (p.rows + Xs - 1) / Xs;
  const auto* weight = static_cast<const Block*>(p.weight) + column * blocks;
  Fetch fetch{reinterpret_cast<const char*>(weight + Ws * blocks),
              reinterpret_cast<const char*>(weight + smaller(2 * Ws, end - column) * blocks)};
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t row = smaller(tile * Xs, p.rows - Xs);
    float sums[Xs][Ws];
    quantised_tile<Xs, Ws>(p.x + row * p.in, weight, blocks, fetch, sums);
    put_tile(sums, p.out + row * p.width + column, p.width);
    fetch.end = fetch.next;  // once
  }
}

/// A tile's most rows of x, which are worth more than rows of the weight: a weight is unpacked once for all of them.
constexpr int kQuantisedXs = kLanes == 16 ? 6 : 4;

/// In as few tiles of x as there can be, all alike. Few sums would wait for each other: then more rows of the weight.
template <class Block, class Out, int Xs = kQuantisedXs>
void multiply_quantised(const QuantisedProduct<Out>& p, int64_t column, int64_t end) {
  const int64_t tiles = (p.rows + Xs - 1) / Xs;
  if constexpr (Xs > 1)
    if (p.rows <= tiles * (Xs - 1)) return multiply_quantised<Block, Out, Xs - 1>(p, column, end);
  constexpr int kWs = kLanes == 16 || Xs <= 2 ? 4 : 2;
  for (; column + kWs <= end; column += kWs) quantised_columns<Xs, kWs, Block>(p, column, end);
  for (; column < end; ++column) quantised_columns<Xs, 1, Block>(p, column, end);
}

template <class Block, class Out, class Weights>
GEMLOUPE_INLINE void unpack_blocks(const void* blocks, int64_t count, Out* out, Weights weights) {
  const auto* block = static_cast<const Block*>(blocks);
  for (const Block* end = block + count; block < end; ++block, out += Block::kElements) {
    Unpacked<Block> unpacked;
    block->unpack(unpacked);
    for (int at = 0; at < Block::kElements; at += static_cast<int>(kLanes))
      store(out + at, weights(unpacked, at, at / Block::kGroup));
  }
}

template <class Block>
void unpack(const void* blocks, int64_t count, float* out) {
  unpack_blocks<Block>(blocks, count, out, weights_of<Block>);
}

template <class Block, class Out>
void dequantise(const void* blocks, int64_t count, Out* out) {
  unpack_blocks<Block>(blocks, count, out, [](const Unpacked<Block>& unpacked, int at, int group) {
    const Float product = floats_of(unpacked.bytes + at) * broadcast(unpacked.scale[group]);
    if constexpr (Block::kLeast)
      return product - broadcast(unpacked.least[group]);
    else
      return product;
  });
}

template <class Block>
constexpr QuantisedFormatLoops kLoopsOf = {Block::kElements,
                                           sizeof(Block),
                                           multiply_quantised<Block, float>,
                                           multiply_quantised<Block, Bfloat16>,
                                           unpack<Block>,
                                           dequantise<Block, float>,
                                           dequantise<Block, Bfloat16>};

constexpr QuantisedLoops kQuantisedLoops = {
    {kLoopsOf<Q8_0>, kLoopsOf<Q5_0>, kLoopsOf<Q4_0>, kLoopsOf<Q4_K>, kLoopsOf<Q5_K>, kLoopsOf<Q6_K>}};

}  // namespace
}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
