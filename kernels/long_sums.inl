// LongSums: the sums of segments that are longer than a block, level by level (body/update.h).
//
// The sums own the list of long segments and the arrays of the levels; they last until the next call.
// Thread-safety: the queue's. All arrays are in device memory.
#ifndef SLOTWISE_KERNELS_LONG_SUMS_INL_
#define SLOTWISE_KERNELS_LONG_SUMS_INL_

#include <cstddef>
#include <cstdint>

#include "kernels/backend/concept.h"
#include "kernels/body/long_sums.h"
#include "kernels/body/update.h"

namespace slotwise {

// Segments whose number the host has not asked for yet: segments.segments is not set.
struct Groups {
  body::Segments segments;
  const std::uint32_t* size;  // one: how many segments there are
};

template <Backend B>
class LongSums {
 public:
  using Queue = typename B::Queue;
  using Words = typename B::template Scratch<std::uint32_t>;

  struct Sums {
    body::Segments segments;             // all
    const std::uint32_t* long_segments;  // [count] those that are longer than body::kSumBlock, in order
    std::uint32_t count;
    body::BlockSums sums;  // of each long segment, one item
  };

  // Begins to find those of `groups` that are longer than body::kSumBlock. Does not wait. Throws
  // std::bad_alloc.
  void Begin(Queue& queue, const Groups& groups) {
    const std::uint32_t n = groups.segments.occurrences;
    std::uint32_t* const list = long_segments_.Reserve(queue, n);
    std::uint32_t* const list_size = long_segments_size_.Reserve(queue, 1);
    B::SelectIndices(queue, n, list, list_size, body::IsLong{groups.segments, groups.size});
    B::Ask(queue, body::CountSegments{groups.size, list_size}, counts_);
    segments_ = groups.segments;
  }

  // REQUIRES: Begin. Waits until the long segments are counted, and begins to plan their blocks. Throws
  // std::bad_alloc.
  void Plan(Queue& queue) {
    const auto counts = counts_.Get(queue);
    segments_ = segments_.Of(counts.all);
    count_ = counts.are_long;
    if (count_ == 0) return;
    most_levels_ = body::LevelsOf(segments_.occurrences);
    const std::uint32_t all = most_levels_ * count_;
    std::uint32_t* const offsets = block_offsets_.Reserve(queue, all + std::size_t{1});
    B::ForEach(queue, all, body::CountBlocks{{segments_, long_segments_.data()}, count_, offsets});
    B::ExclusiveScan(queue, offsets, all, offsets);
    B::Ask(queue, body::FindLevels{offsets, count_, most_levels_}, levels_);
  }

  // REQUIRES: Plan. The sums of the long segments, of what `source` gives for an occurrence. Waits for the
  // plan, if there are any. Throws std::bad_alloc.
  template <class Source>
  Sums Sum(Queue& queue, Source source, std::uint32_t dim) {
    body::BlockSums sums{nullptr, dim};
    if (count_ > 0) sums = SumLevels(queue, source, dim);
    return {segments_, long_segments_.data(), count_, sums};
  }

  // Gives back what the sums take. REQUIRES: they are not needed any more.
  void FreeScratch() {
    long_segments_ = {};
    block_offsets_ = {};
    sums_ = {};
  }

 private:
  // Level by level, until every long segment is one item.
  template <class Source>
  body::BlockSums SumLevels(Queue& queue, Source source, std::uint32_t dim) {
    const body::Occurrences occurrences{segments_, long_segments_.data()};
    const std::uint32_t count = count_;
    const std::uint32_t* const offsets = block_offsets_.data();
    const auto levels = levels_.Get(queue);
    const auto blocks_of = [&](std::uint32_t level) { return levels.first[level + 1] - levels.first[level]; };
    std::uint32_t last = 0;  // the level on which each segment is one block
    while (blocks_of(last) != count) ++last;

    float* const sums = sums_.Reserve(queue, std::size_t{levels.first[last + 1]} * dim);
    const auto blocks = [&](std::uint32_t level) {
      return body::Blocks{offsets + std::size_t{level} * count};
    };
    B::ForEachTile(
        queue, blocks_of(0), dim,
        body::SumBlocks<body::Occurrences, Source>{occurrences, source, blocks(0), 0, count, dim, sums});
    for (std::uint32_t level = 1; level <= last; ++level) {
      B::ForEachTile(
          queue, blocks_of(level), dim,
          body::SumBlocks<body::Blocks, body::BlockSums>{
              blocks(level - 1), {sums, dim}, blocks(level), levels.first[level], count, dim, sums});
    }
    return {sums + std::size_t{levels.first[last]} * dim, dim};
  }

  body::Segments segments_{};
  std::uint32_t count_ = 0;  // of long segments
  std::uint32_t most_levels_ = 0;
  typename B::template Answer<body::CountSegments::Counts> counts_;
  typename B::template Answer<body::FindLevels::Levels> levels_;
  Words long_segments_;
  Words long_segments_size_;                  // one
  Words block_offsets_;                       // [levels * long segments + 1]
  typename B::template Scratch<float> sums_;  // [blocks of all levels][dim]
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_LONG_SUMS_INL_
