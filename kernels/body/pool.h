// Pooling: the rows of a bag become one vector, added in key order from +0. A key without a row adds nothing.
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
  float* out;                    // [bags][dim]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t bag) const {
    const std::uint32_t begin = offsets[bag];
    const std::uint32_t end = offsets[bag + 1];
    float* pooled = out + static_cast<std::size_t>(bag) * table.dim;
    ForEachChunk(tile, table.dim, [&](auto chunk) {
      float sum[Tile::kElements] = {};
      for (std::uint32_t i = begin; i < end; ++i) {
        if (rows[i] == kNoRow) continue;
        const float* row = table.Record(rows[i]);
        for (std::uint32_t k = 0; k < Tile::kElements; ++k) {
          if (chunk.Has(k)) sum[k] += row[chunk.Element(k)];
        }
      }
      for (std::uint32_t k = 0; k < Tile::kElements; ++k) {
        if (chunk.Has(k)) pooled[chunk.Element(k)] = sum[k];
      }
    });
  }
};

// A tile a bag: the division of mean and sqrtn, of pooled values on their way out and of gradients on their way in.
struct DivideBags {
  const std::uint32_t* offsets;  // [bags + 1] all keys of the bag, absent ones and other ranks' too
  std::uint32_t dim;
  bool by_root;   // by √n, not n
  float* values;  // [bags][dim]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t bag) const {
    const std::uint32_t keys = offsets[bag + 1] - offsets[bag];
    if (keys <= 1) return;
    const auto n = static_cast<float>(keys);
    const float divisor = by_root ? sqrtf(n) : n;
    float* value = values + static_cast<std::size_t>(bag) * dim;
    for (std::uint32_t j = tile.lane(); j < dim; j += Tile::kLanes) value[j] /= divisor;
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_POOL_H_
