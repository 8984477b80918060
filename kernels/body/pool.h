// Pooling: the rows of a bag, times their weights if there are any, become one vector, added in key order from +0. A key
// without a row adds nothing.
#ifndef SLOTWISE_KERNELS_BODY_POOL_H_
#define SLOTWISE_KERNELS_BODY_POOL_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/body/portable.h"
#include "kernels/body/rows.h"
#include "slotwise/types.h"

namespace slotwise::body {

// A tile a bag.
struct PoolBags {
  RowsRef table;
  const RowIndex* rows;          // [keys] the row of each key
  const std::uint32_t* offsets;  // [bags + 1]
  const float* weights;          // [keys], or null: all 1
  float* out;                    // [bags][dim]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t bag) const {
    if (weights == nullptr) {
      Pool(tile, bag, [](auto part, std::uint32_t) { return part; });
    } else {
      Pool(tile, bag, [by = weights](auto part, std::uint32_t i) { return by[i] * part; });
    }
  }

  // Of a long bag only the beginning: the processor itself then sees far enough ahead.
  static constexpr std::uint32_t kAhead = 3;
  void Prefetch(std::uint32_t bag) const {
    constexpr std::uint32_t kMost = 8;
    const std::uint32_t begin = offsets[bag];
    const std::uint32_t keys = offsets[bag + 1] - begin;
    for (std::uint32_t i = begin; i < begin + (keys < kMost ? keys : kMost); ++i) {
      if (rows[i] != kNoRow) PrefetchBytes(table.Record(rows[i]), table.dim * sizeof(float));
    }
  }

 private:
  template <class Tile, class Weigh>
  SLOTWISE_HD void Pool(Tile tile, std::uint32_t bag, Weigh weigh) const {
    const std::uint32_t begin = offsets[bag];
    const std::uint32_t end = offsets[bag + 1];
    float* pooled = out + static_cast<std::size_t>(bag) * table.dim;
    ForEachChunk(tile, table.dim, [=, *this](auto chunk) {
      using Chunk = decltype(chunk);
      typename Chunk::Part sum[Chunk::kParts] = {};
      constexpr std::uint32_t kRows = Tile::kRowsInFlight;
      for (std::uint32_t i = begin; i < end; i += kRows) {
        if constexpr (kRows == 1) {
          if (rows[i] == kNoRow) continue;
          const float* row = table.Record(rows[i]);
          for (std::uint32_t p = 0; p < Chunk::kParts; ++p) sum[p] += weigh(chunk.Load(row, p), i);
        } else {
          typename Chunk::Part loaded[kRows][Chunk::kParts];
          bool there[kRows];
          for (std::uint32_t r = 0; r < kRows; ++r) {
            const RowIndex row = i + r < end ? rows[i + r] : kNoRow;
            there[r] = row != kNoRow;
            if (!there[r]) continue;
            for (std::uint32_t p = 0; p < Chunk::kParts; ++p) loaded[r][p] = chunk.Load(table.Record(row), p);
          }
          for (std::uint32_t r = 0; r < kRows; ++r) {
            if (!there[r]) continue;
            for (std::uint32_t p = 0; p < Chunk::kParts; ++p) sum[p] += weigh(loaded[r][p], i + r);
          }
        }
      }
      for (std::uint32_t p = 0; p < Chunk::kParts; ++p) chunk.Store(pooled, p, sum[p]);
    });
  }
};

// What mean and sqrtn divide a bag by: n or √n of all its keys, absent ones and other ranks' too; with weights Σ w or
// √Σ w², in key order from +0. 0 of a bag whose weights cancel out.
struct BagDivisor {
  const std::uint32_t* offsets;  // [bags + 1]
  const float* weights;          // of the keys that `offsets` count, or null: all 1
  bool by_root;                  // sqrtn

  SLOTWISE_HD float operator()(std::uint32_t bag) const {
    float n = 0.0F;
    if (weights == nullptr) {
      n = static_cast<float>(offsets[bag + 1] - offsets[bag]);
    } else {
      for (std::uint32_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
        n += by_root ? weights[i] * weights[i] : weights[i];
      }
    }
    return by_root ? sqrtf(n) : n;
  }
};

// A tile a bag: the division of pooled values on their way out. A divisor of 0 makes zeros.
struct DivideBags {
  BagDivisor divisor_of;
  std::uint32_t dim;
  float* values;  // [bags][dim]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t bag) const {
    const float divisor = divisor_of(bag);
    if (divisor == 1.0F) return;
    float* value = values + static_cast<std::size_t>(bag) * dim;
    for (std::uint32_t j = tile.lane(); j < dim; j += Tile::kLanes) {
      value[j] = divisor == 0.0F ? 0.0F : value[j] / divisor;
    }
  }
};

struct WriteDivisors {
  BagDivisor divisor_of;
  float* divisors;  // [bags]
  SLOTWISE_HD void operator()(std::uint32_t bag) const { divisors[bag] = divisor_of(bag); }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_POOL_H_
