// RowsOf says where rows lie in memory, and WriteNewRows says what a new row holds.
//
// A row's record is its `dim` values and then the optimizer's vectors of `dim` floats, in one piece, so that
// an update touches one place in memory. An optimizer that keeps one float a row keeps it in an array of its
// own, in the order of the rows. In exports and imports of a row, that float follows the values. A table with
// scores keeps each row's score, with the row's key, in a third array; a score comes last in exports.
#ifndef SLOTWISE_KERNELS_BODY_ROWS_H_
#define SLOTWISE_KERNELS_BODY_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/body/initial_value.h"
#include "kernels/body/portable.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise::body {

// The key and the score of a row, side by side, so that an eviction reads them in the order of the rows.
struct alignas(16) ScoredKey {
  std::uint64_t key;
  std::uint64_t score;
};

// Rows that no key has have this score.
inline constexpr std::uint64_t kNoScore = kScoreOfNew;
// A row with this bit in its score is not evicted. The bit is set only while an eviction is decided on.
inline constexpr std::uint64_t kProtected = std::uint64_t{1} << 63;

// All floats of a row, in the order in which it is exported.
struct FloatsOfRow {
  float* record;
  float* shared;
  std::uint32_t in_record;
  std::uint32_t before_score;
  const ScoredKey* scored;

  // REQUIRES: j < before_score.
  SLOTWISE_HD float& operator[](std::uint32_t j) const { return j < in_record ? record[j] : *shared; }
  // Returns any of the floats. The score is the last two, the lower 32 bits first.
  SLOTWISE_HD float Read(std::uint32_t j) const {
    if (j < before_score) return (*this)[j];
    const auto bits = static_cast<std::uint32_t>(scored->score >> (j == before_score ? 0 : 32));
    float word = 0;
    memcpy(&word, &bits, sizeof(word));
    return word;
  }
};

// Rows of Elements. All tables have rows of floats; pooling can read Float16 and BFloat16 too.
template <class Element>
struct RowsOf {
  Element* records;
  float* shared;  // [rows] the float that the optimizer keeps once a row; null if it keeps none
  std::uint32_t dim;
  std::uint32_t floats;         // all floats of a row: dim, its state's, and its score's
  std::uint32_t stride;         // from one record to the next
  ScoredKey* scored = nullptr;  // [rows]; null if the table keeps no scores

  SLOTWISE_HD Element* Record(RowIndex row) const {
    return records + static_cast<std::size_t>(Value(row)) * stride;
  }
  // REQUIRES: the optimizer keeps a float a row.
  SLOTWISE_HD float* Shared(RowIndex row) const { return shared + Value(row); }
  SLOTWISE_HD FloatsOfRow Floats(RowIndex row) const {
    return {Record(row), shared == nullptr ? nullptr : Shared(row), stride, WithoutScore(),
            scored == nullptr ? nullptr : scored + Value(row)};
  }
  // Returns how many floats of a row are values or state.
  SLOTWISE_HD std::uint32_t WithoutScore() const { return scored == nullptr ? floats : floats - 2; }
};
using RowsRef = RowsOf<float>;

// Writes a new row, which one tile works on: initial values, an optimizer's state that is all `state`, and a
// score.
struct WriteNewRows {
  RowsRef rows;
  InitializerOptions first;
  float state;
  std::uint64_t score;
  const Key* new_keys;       // [new rows]
  const RowIndex* new_rows;  // [new rows]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t i) const {
    const Key key = new_keys[i];
    float* record = rows.Record(new_rows[i]);
    for (std::uint32_t j = tile.lane(); j < rows.dim; j += Tile::kLanes)
      record[j] = InitialValue(first, key, j);
    const FloatsOfRow floats = rows.Floats(new_rows[i]);
    for (std::uint32_t j = rows.dim + tile.lane(); j < rows.WithoutScore(); j += Tile::kLanes)
      floats[j] = state;
    if (rows.scored != nullptr && tile.lane() == 0) rows.scored[Value(new_rows[i])] = {Value(key), score};
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
    for (std::uint32_t j = tile.lane(); j < rows.floats; j += Tile::kLanes) out[j] = floats.Read(j);
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ROWS_H_
