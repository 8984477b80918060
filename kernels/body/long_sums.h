// These bodies sum long segments (update.h), level by level. A tile sums a block, so one key with a tenth of
// the batch keeps every processor busy.
//
// A level's items are summed in blocks, which are the items of the next level. Blocks are counted through all
// levels: first those of level 0, segment by segment, then those of level 1, and so on.
#ifndef SLOTWISE_KERNELS_BODY_LONG_SUMS_H_
#define SLOTWISE_KERNELS_BODY_LONG_SUMS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/body/portable.h"
#include "kernels/body/update.h"

namespace slotwise::body {

// The sum of all of a batch is an item of the seventh level: 32^7 is more than 2^32.
inline constexpr std::uint32_t kMostLevels = 7;

// Returns how many levels it takes to make one item of `items` items.
SLOTWISE_HD constexpr std::uint32_t LevelsOf(std::uint32_t items) {
  std::uint32_t levels = 0;
  for (; items > 1; items = BlocksOf(items)) ++levels;
  return levels;
}
static_assert(LevelsOf(~std::uint32_t{0}) == kMostLevels);

// Returns how many blocks a long segment has on all levels.
SLOTWISE_HD constexpr std::uint32_t AllBlocksOf(std::uint32_t items) {
  std::uint32_t all = 0;
  while (items > 1) all += items = BlocksOf(items);
  return all;
}

// Says whether a segment is longer than a block. The number of segments is not in `segments` yet.
struct IsLong {
  Segments segments;
  const std::uint32_t* size;
  SLOTWISE_HD bool operator()(std::uint32_t segment) const {
    return segment < *size && segments.Of(*size).Length(segment) > kSumBlock;
  }
};

// Tells the host how many segments there are, and how many of them are long.
struct CountSegments {
  struct Counts {
    std::uint32_t all;
    std::uint32_t are_long;
  };
  const std::uint32_t* all;
  const std::uint32_t* are_long;
  SLOTWISE_HD Counts operator()() const { return {*all, *are_long}; }
};

// The items of level 0 are occurrences.
struct Occurrences {
  Segments segments;
  const std::uint32_t* long_segments;
  SLOTWISE_HD std::uint32_t First(std::uint32_t s) const { return segments.begin[long_segments[s]]; }
  SLOTWISE_HD std::uint32_t Count(std::uint32_t s) const { return segments.Length(long_segments[s]); }
};

// The blocks of one level.
struct Blocks {
  const std::uint32_t* offsets;  // [long segments + 1] the first block of each
  SLOTWISE_HD std::uint32_t First(std::uint32_t s) const { return offsets[s]; }
  SLOTWISE_HD std::uint32_t Count(std::uint32_t s) const { return offsets[s + 1] - offsets[s]; }
};

// Counts the blocks of a long segment on a level.
struct CountBlocks {
  Occurrences occurrences;
  std::uint32_t long_segments;
  std::uint32_t* counts;  // [levels][long segments]
  SLOTWISE_HD void operator()(std::uint32_t i) const {
    std::uint32_t count = occurrences.Count(i % long_segments);
    for (std::uint32_t level = 0; level <= i / long_segments; ++level) count = BlocksOf(count);
    counts[i] = count;
  }
};

// Tells the host the first block of each level, and the number of all blocks.
struct FindLevels {
  struct Levels {
    std::uint32_t first[kMostLevels + 1];
  };
  const std::uint32_t* offsets;  // [levels * long segments + 1]
  std::uint32_t long_segments;
  std::uint32_t levels;
  SLOTWISE_HD Levels operator()() const {
    Levels found{};
    for (std::uint32_t level = 0; level <= levels; ++level) {
      found.first[level] = offsets[static_cast<std::size_t>(level) * long_segments];
    }
    return found;
  }
};

// Sums a block of one level's items, which one tile works on. Items: Occurrences, or the Blocks of the level
// below.
template <class Items, class Source>
struct SumBlocks {
  Items items;
  Source source;  // item -> float[dim]
  Blocks blocks;  // of this level
  std::uint32_t first_block;
  std::uint32_t long_segments;
  std::uint32_t dim;
  float* sums;  // [all blocks][dim]

  static constexpr std::uint32_t kRowsHeld = 8;

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t i) const {
    const std::uint32_t block = first_block + i;
    const std::uint32_t s = SegmentOf(block);
    const std::uint32_t skipped = (block - blocks.First(s)) * kSumBlock;
    const std::uint32_t left = items.Count(s) - skipped;
    const std::uint32_t count = left < kSumBlock ? left : kSumBlock;
    const auto item = [source = source, begin = items.First(s) + skipped](std::uint32_t k) {
      return source(begin + k);
    };
    float* const out = sums + static_cast<std::size_t>(block) * dim;
    ForEachChunk(tile, dim, [=](auto chunk) {
      Vectors<decltype(chunk)> sum;
      if constexpr (Tile::kRowsInFlight == 1) {
        SumInOrder(chunk, count, item, sum);
      } else {
        SumInOrderByMany<kRowsHeld>(chunk, count, item, sum);
      }
      for (std::uint32_t v = 0; v < decltype(chunk)::kVectors; ++v) chunk.Store(out, v, sum[v]);
    });
  }

 private:
  // Returns the last s whose first block is not behind `block`.
  SLOTWISE_HD std::uint32_t SegmentOf(std::uint32_t block) const {
    std::uint32_t low = 0;
    std::uint32_t high = long_segments;
    while (high - low > 1) {
      const std::uint32_t middle = low + (high - low) / 2;
      (blocks.First(middle) <= block ? low : high) = middle;
    }
    return low;
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_LONG_SUMS_H_
