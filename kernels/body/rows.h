// Where rows lie, and what a new one holds.
//
// A row's record is its `dim` values, then its optimizer's vectors, each `dim` long, all in one piece: an update then
// touches one place in memory.
#ifndef SLOTWISE_KERNELS_BODY_ROWS_H_
#define SLOTWISE_KERNELS_BODY_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/body/philox.h"
#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

struct RowsRef {
  float* data;
  std::uint32_t dim;
  std::uint32_t stride;  // floats a record

  SLOTWISE_HD float* Record(RowIndex row) const {
    return data + static_cast<std::size_t>(Value(row)) * stride;
  }
};

// Uniform in [low, high), from (seed, key, element) alone: semantics.md, "Ownership and first values".
struct UniformFirstValues {
  float low;
  float high;
  std::uint64_t seed;

  SLOTWISE_HD float operator()(Key key, std::uint32_t element) const {
    const std::uint64_t k = Value(key);
    const PhiloxWords words =
        Philox4x32({{static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(k >> 32), element / 4, 0}},
                   static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
    const float u = static_cast<float>(words.word[element % 4] >> 8) * 0x1p-24F;
    return low + u * (high - low);
  }
};

// A tile a new row: the values by `first`, the optimizer's vectors all `state`.
struct WriteNewRows {
  RowsRef rows;
  UniformFirstValues first;
  float state;
  RowIndex base;        // the first new row
  const Key* new_keys;  // [new rows]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t i) const {
    const Key key = new_keys[i];
    float* record = rows.Record(RowIndex{Value(base) + i});
    for (std::uint32_t j = tile.lane(); j < rows.dim; j += Tile::kLanes) record[j] = first(key, j);
    for (std::uint32_t j = rows.dim + tile.lane(); j < rows.stride; j += Tile::kLanes) record[j] = state;
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ROWS_H_
