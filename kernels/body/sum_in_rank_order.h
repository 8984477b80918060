// The sum over ranks adds numbers of each rank in float32, from +0 in the order of the ranks. This body adds
// up everything that ranks send each other, so every transport between ranks gives the same bytes.
//
// Sums begin from +0, because a negative number may round to -0 as it becomes 16 bits, and a sum of nothing
// else would stay -0.
// A chunk's sum stays in registers while the ranks' numbers are loaded and widened: one pass over memory.
#ifndef SLOTWISE_KERNELS_BODY_SUM_IN_RANK_ORDER_H_
#define SLOTWISE_KERNELS_BODY_SUM_IN_RANK_ORDER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/body/portable.h"

namespace slotwise::body {

// Sums one row, which one tile works on. First(row) of `Addends` says where the row lies in the sums,
// Length(row) how long the row is; ForEach(row, visit) calls visit(addend) with each rank's numbers of the
// row, in rank order.
template <class Addends>
struct SumInRankOrder {
  Addends addends;
  float* sums;

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t row) const {
    float* out = sums + addends.First(row);
    ForEachChunk(tile, addends.Length(row), [&](auto chunk) {
      using Chunk = decltype(chunk);
      Vectors<Chunk> sum = {};
      addends.ForEach(row, [&](const auto* addend) {
        SLOTWISE_UNROLL
        for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) sum[v] += chunk.Load(addend, v);
      });
      SLOTWISE_UNROLL
      for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) chunk.Store(out, v, sum[v]);
    });
  }
};

// The addends of one block a rank, of `size` elements each. Rows are cuts of the blocks: `row` elements, the
// last one shorter. T: float, Float16 or BFloat16.
template <class T>
struct BlocksOfRanks {
  const T* blocks;  // [ranks][size]
  const T* own;     // [size] the block of rank `me`, wherever it lies: blocks[me] is not read
  std::uint32_t me;
  std::uint32_t ranks;
  std::uint32_t row;
  std::size_t size;

  SLOTWISE_HD std::size_t First(std::uint32_t i) const { return static_cast<std::size_t>(i) * row; }
  SLOTWISE_HD std::uint32_t Length(std::uint32_t i) const {
    const std::size_t left = size - First(i);
    return left < row ? static_cast<std::uint32_t>(left) : row;
  }
  template <class Visit>
  SLOTWISE_HD void ForEach(std::uint32_t i, Visit visit) const {
    const std::size_t first = First(i);
    for (std::uint32_t r = 0; r < ranks; ++r) visit((r == me ? own : blocks + r * size) + first);
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_SUM_IN_RANK_ORDER_H_
