// RowsOf says where rows lie in memory, and WriteNewRows says what a new row holds.
//
// A row's record is its `dim` values and then the optimizer's vectors of `dim` floats, in one piece, so that
// an update touches one place in memory. An optimizer that keeps one float a row keeps it in an array of its
// own, in the order of the rows. In exports and imports of a row, that float follows the values.
#ifndef SLOTWISE_KERNELS_BODY_ROWS_H_
#define SLOTWISE_KERNELS_BODY_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/body/initial_value.h"
#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

// All floats of a row, in the order in which it is exported.
struct FloatsOfRow {
  float* record;
  float* shared;
  std::uint32_t in_record;

  SLOTWISE_HD float& operator[](std::uint32_t j) const { return j < in_record ? record[j] : *shared; }
};

// Rows of Elements. All tables have rows of floats; pooling can read Float16 and BFloat16 too.
template <class Element>
struct RowsOf {
  Element* records;
  float* shared;  // [rows] the float that the optimizer keeps once a row; null if it keeps none
  std::uint32_t dim;
  std::uint32_t floats;  // all floats of a row: dim, and its state's
  std::uint32_t stride;  // from one record to the next

  SLOTWISE_HD Element* Record(RowIndex row) const {
    return records + static_cast<std::size_t>(Value(row)) * stride;
  }
  // REQUIRES: the optimizer keeps a float a row.
  SLOTWISE_HD float* Shared(RowIndex row) const { return shared + Value(row); }
  SLOTWISE_HD FloatsOfRow Floats(RowIndex row) const {
    return {Record(row), shared == nullptr ? nullptr : Shared(row), stride};
  }
};
using RowsRef = RowsOf<float>;

// Writes a new row, which one tile works on: initial values, and an optimizer's state that is all `state`.
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
      record[j] = InitialValue(first, key, j);
    const FloatsOfRow floats = rows.Floats(new_rows[i]);
    for (std::uint32_t j = rows.dim + tile.lane(); j < rows.floats; j += Tile::kLanes) floats[j] = state;
  }
};

// Copies the floats of a row, which one tile works on, to where the host can fetch it.
struct CopyRecords {
  RowsRef rows;
  const RowIndex* from;        // indexed by `which`
  const std::uint32_t* which;  // [records]
  float* to;                   // [records][floats]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t i) const {
    const FloatsOfRow floats = rows.Floats(from[which[i]]);
    float* out = to + static_cast<std::size_t>(i) * rows.floats;
    for (std::uint32_t j = tile.lane(); j < rows.floats; j += Tile::kLanes) out[j] = floats[j];
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ROWS_H_
