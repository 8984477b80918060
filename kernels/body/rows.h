// Where rows lie, and what a new one holds.
//
// A row's record is its `dim` values, then its optimizer's state, all in one piece: an update then
// touches one place in memory.
#ifndef SLOTWISE_KERNELS_BODY_ROWS_H_
#define SLOTWISE_KERNELS_BODY_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/body/first_value.h"
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

// A tile a new row: the values by the initializer, the optimizer's state all `state`.
struct WriteNewRows {
  RowsRef rows;
  InitializerOptions first;
  float state;
  RowIndex base;        // the first new row
  const Key* new_keys;  // [new rows]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t i) const {
    const Key key = new_keys[i];
    float* record = rows.Record(RowIndex{Value(base) + i});
    for (std::uint32_t j = tile.lane(); j < rows.dim; j += Tile::kLanes)
      record[j] = FirstValue(first, key, j);
    for (std::uint32_t j = rows.dim + tile.lane(); j < rows.stride; j += Tile::kLanes) record[j] = state;
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ROWS_H_
