// Implements Stream::SumOverRanks for every backend.
//
// Included by shard_cpu.cc and shard_cuda.cu alone.
#ifndef SLOTWISE_KERNELS_SUM_OVER_RANKS_INL_
#define SLOTWISE_KERNELS_SUM_OVER_RANKS_INL_

#include <cstddef>
#include <cstdint>

#include "kernels/backend/concept.h"
#include "kernels/body/sum_in_rank_order.h"
#include "kernels/dispatch.h"
#include "kernels/shard.h"

namespace slotwise {

// Calls use(sum_row, rows) with the body of the sum, to be launched over `rows` rows of `row` numbers each.
template <class Use>
void WithSumOf(const RankBlocks& blocks, std::uint32_t row, float* sum, Use use) {
  WithElements(blocks.blocks, [&]<class T>(const T* elements) {
    const bool elsewhere = blocks.own != nullptr;
    const body::BlocksOfRanks<T> addends{elements,
                                         elsewhere ? static_cast<const T*>(blocks.own) : elements,
                                         elsewhere ? static_cast<std::uint32_t>(blocks.me) : 0,
                                         static_cast<std::uint32_t>(blocks.ranks),
                                         row,
                                         blocks.size};
    use(body::SumInRankOrder<body::BlocksOfRanks<T>>{addends, sum},
        static_cast<std::uint32_t>((blocks.size + row - 1) / row));
  });
}

// Returns whether four neighbouring numbers of every block and of the sum can be loaded and stored at once.
inline bool LieByFours(const RankBlocks& blocks, const float* sum) {
  return blocks.size % 4 == 0 && LiesByFours(blocks.blocks) &&
         LiesByFours({blocks.own, blocks.blocks.type}) && LiesByFours(sum);
}

template <Backend B>
void SumBlocksOn(typename B::Queue& queue, const RankBlocks& blocks, float* sum) {
  constexpr std::uint32_t kRow = B::kRowOfNumbers;
  // Tiles for rows of an odd length load number by number.
  const std::uint32_t tiles_for = LieByFours(blocks, sum) ? kRow : kRow - 1;
  WithSumOf(blocks, kRow, sum,
            [&](auto sum_row, std::uint32_t rows) { B::ForEachTile(queue, rows, tiles_for, sum_row); });
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_SUM_OVER_RANKS_INL_
