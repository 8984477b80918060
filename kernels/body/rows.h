// Where rows lie in memory, and what a new row holds.
//
// A row's record is its `dim` values and then the optimizer's state, in one piece, so that an update touches
// one place in memory.
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
  std::uint32_t floats;  // a record: dim, and its state's
  std::uint32_t stride;  // from one record to the next: as many, or a few more for alignment

  SLOTWISE_HD float* Record(RowIndex row) const {
    return data + static_cast<std::size_t>(Value(row)) * stride;
  }
};

// Writes a new row, which one tile works on: first values, and an optimizer's state that is all `state`.
struct WriteNewRows {
  RowsRef rows;
  InitializerOptions first;
  float state;
  const Key* new_keys;       // [new rows]
  const RowIndex* new_rows;  // [new rows]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t i) const {
    const Key key = new_keys[i];
    float* record = rows.Record(new_rows[i]);
    for (std::uint32_t j = tile.lane(); j < rows.dim; j += Tile::kLanes)
      record[j] = FirstValue(first, key, j);
    for (std::uint32_t j = rows.dim + tile.lane(); j < rows.floats; j += Tile::kLanes) record[j] = state;
  }
};

// Copies the record of a row, which one tile works on, to where the host can fetch it.
struct CopyRecords {
  RowsRef rows;
  const RowIndex* from;        // by `which`
  const std::uint32_t* which;  // [records]
  float* to;                   // [records][floats]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t i) const {
    const float* record = rows.Record(from[which[i]]);
    float* out = to + static_cast<std::size_t>(i) * rows.floats;
    for (std::uint32_t j = tile.lane(); j < rows.floats; j += Tile::kLanes) out[j] = record[j];
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ROWS_H_
