// LongSums: the sums of segments that are longer than a block, level by level (body/update.h).
//
// The sums own the list of long segments and the arrays of the levels; they last until the next call.
// Thread-safety: the queue's. All arrays are in device memory.
#ifndef SLOTWISE_KERNELS_LONG_SUMS_INL_
#define SLOTWISE_KERNELS_LONG_SUMS_INL_

#include <cstddef>
#include <cstdint>

#include "kernels/backend/concept.h"
#include "kernels/body/update.h"
#include "kernels/selection.inl"

namespace slotwise {

template <Backend B>
class LongSums {
 public:
  using Queue = typename B::Queue;
  using Words = typename B::template Scratch<std::uint32_t>;

  struct Sums {
    const std::uint32_t* segments;  // [count] the long segments, in order
    std::uint32_t count;
    body::BlockSums sums;  // of each long segment, one item
  };

  // The sums of those of `segments` that are longer than body::kSumBlock, of what `source` gives for an
  // occurrence. Waits. Throws std::bad_alloc.
  template <class Source>
  Sums SumLongSegments(Queue& queue, const body::Segments& segments, Source source, std::uint32_t dim) {
    std::uint32_t* const list = long_segments_.Reserve(queue, segments.segments);
    const std::uint32_t count = selection_.Select(queue, segments.segments, list, body::IsLong{segments});
    body::BlockSums sums{nullptr, dim};
    if (count > 0) sums = SumLevels(queue, segments, source, count, dim);
    return {list, count, sums};
  }

 private:
  // Level by level, until every long segment is one item.
  template <class Source>
  body::BlockSums SumLevels(Queue& queue, const body::Segments& segments, Source source, std::uint32_t count,
                            std::uint32_t dim) {
    std::uint32_t* first = level_first_.Reserve(queue, count + std::size_t{1});
    std::uint32_t* length = level_length_.Reserve(queue, count);
    B::ForEach(queue, count, body::BeginLevels{segments, long_segments_.data(), first, length});
    body::BlockSums sums{nullptr, dim};
    int level = 0;
    for (std::uint32_t blocks = 0; blocks != count; ++level) {
      // This level's first and length become the next one's once its blocks are summed, hence two of each.
      std::uint32_t* const block_offset = block_offset_[level % 2].Reserve(queue, count + std::size_t{1});
      std::uint32_t* const block_count = block_count_[level % 2].Reserve(queue, count + std::size_t{1});
      B::ForEach(queue, count, body::CountBlocks{length, block_count});
      B::ExclusiveScan(queue, block_count, count, block_offset);
      blocks = B::Get(queue, block_offset + count);
      float* const out = sums_[level % 2].Reserve(queue, std::size_t{blocks} * dim);
      const body::Level items{first, length};
      if (level == 0) {
        B::ForEachTile(queue, blocks, dim,
                       body::SumBlocks<Source>{items, source, block_offset, count, dim, out});
      } else {
        B::ForEachTile(queue, blocks, dim,
                       body::SumBlocks<body::BlockSums>{items, sums, block_offset, count, dim, out});
      }
      sums.sums = out;
      first = block_offset;
      length = block_count;
    }
    return sums;
  }

  Words long_segments_;
  Words level_first_;   // [long segments + 1]
  Words level_length_;  // [long segments]
  Words block_offset_[2];
  Words block_count_[2];
  typename B::template Scratch<float> sums_[2];  // [blocks of the level][dim]
  Selection<B> selection_;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_LONG_SUMS_INL_
