// These bodies give rows what a table that is altered needs of them: keys beside the rows, and scores.
#ifndef SLOTWISE_KERNELS_BODY_ALTER_H_
#define SLOTWISE_KERNELS_BODY_ALTER_H_

#include <cstdint>

#include "kernels/body/hash_table.h"
#include "kernels/body/portable.h"
#include "kernels/body/rows.h"
#include "kernels/eviction_place.h"
#include "slotwise/types.h"

namespace slotwise::body {

// Writes the keys of cells beside their rows, and the score, if rows have scores.
struct WriteKeysOfCells {
  SomeCells cells;
  RowsRef rows;
  std::uint64_t score;

  SLOTWISE_HD void operator()(std::uint64_t cell) const {
    if (!cells.Live(cell)) return;
    const RowIndex row = cells.RowAt(cell);
    rows.WriteKey(row, cells.KeyAt(cell));
    if (rows.scored != nullptr) rows.scored[Value(row)].score = score;
  }
};

// Makes scores that count of scores that are steps, or the reverse. The step in which a push touched a row
// last stays; a count begins at 0, as that of a row that no push has touched, or goes.
struct ConvertScores {
  ScoredKey* scored;
  bool to_counts;

  SLOTWISE_HD void operator()(std::uint64_t row) const {
    std::uint64_t& score = scored[row].score;
    if (score == kNoScore) return;
    score = to_counts ? OccurrenceScore{0, score}.bits() : OccurrenceScore::Of(score).step;
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ALTER_H_
