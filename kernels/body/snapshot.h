// These are the bodies of snapshots, of marks of changed rows, and of bulk loads.
//
// While a snapshot is open, each row that existed when it began has a state:
//
//     [0, kUnsaved)      the number of the copy that holds the row as it was
//     [kUnsaved, kDone)  the row itself is still as it was, and will be read
//     kDone              no call will read the row any more
//
// A batch that is about to change rows claims those that are still unsaved: each of its occurrences writes
// kUnsaved plus its own place, and the one that finds its place there afterwards saves the row. So an
// abandoned batch leaves nothing to undo.
#ifndef SLOTWISE_KERNELS_BODY_SNAPSHOT_H_
#define SLOTWISE_KERNELS_BODY_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/body/hash_table.h"
#include "kernels/body/portable.h"
#include "kernels/body/rows.h"
#include "kernels/body/update.h"
#include "slotwise/types.h"

namespace slotwise::body {

inline constexpr std::uint32_t kUnsaved = std::uint32_t{1} << 31;
inline constexpr std::uint32_t kDone = ~std::uint32_t{0};

SLOTWISE_HD constexpr bool IsCopied(std::uint32_t state) { return state < kUnsaved; }
SLOTWISE_HD constexpr bool IsUnsaved(std::uint32_t state) { return state >= kUnsaved && state != kDone; }

// Copy all floats of a row, which one tile works on, out of the table, or into it.
template <class Tile>
SLOTWISE_HD void CopyFloatsOut(Tile tile, const RowsRef& rows, RowIndex row, float* to) {
  const std::byte* const record = rows.Record(row);
  WithElement(rows.type, [=, &rows](auto element) {
    const auto* const values = reinterpret_cast<const decltype(element)*>(record);
    for (std::uint32_t j = tile.lane(); j < rows.dim; j += Tile::kLanes)
      to[j] = LoadVector<float>(values + j);
  });
  const auto* const state = reinterpret_cast<const float*>(record + rows.state_at);
  for (std::uint32_t j = rows.dim + tile.lane(); j < rows.in_record; j += Tile::kLanes)
    to[j] = state[j - rows.dim];
  if (rows.shared != nullptr && tile.lane() == 0) to[rows.in_record] = *rows.Shared(row);
  if (rows.scored != nullptr && tile.lane() == 0)
    memcpy(to + rows.WithoutScore(), &rows.scored[Value(row)].score, sizeof(ScoredKey::score));
}
template <class Tile>
SLOTWISE_HD void CopyFloatsIn(Tile tile, const RowsRef& rows, RowIndex row, const float* from) {
  std::byte* const record = rows.Record(row);
  WithElement(rows.type, [=, &rows](auto element) {
    auto* const values = reinterpret_cast<decltype(element)*>(record);
    for (std::uint32_t j = tile.lane(); j < rows.dim; j += Tile::kLanes) StoreValue(values + j, from[j]);
  });
  auto* const state = reinterpret_cast<float*>(record + rows.state_at);
  for (std::uint32_t j = rows.dim + tile.lane(); j < rows.in_record; j += Tile::kLanes)
    state[j - rows.dim] = from[j];
  if (rows.shared != nullptr && tile.lane() == 0) *rows.Shared(row) = from[rows.in_record];
  if (rows.scored != nullptr && tile.lane() == 0)
    memcpy(&rows.scored[Value(row)].score, from + rows.WithoutScore(), sizeof(ScoredKey::score));
}
inline void PrefetchFloats(const RowsRef& rows, RowIndex row) {
  PrefetchRow(rows.Record(row), rows.stride);
  if (rows.shared != nullptr) PrefetchRow(rows.Shared(row), 1);
  if (rows.scored != nullptr) PrefetchBytes(rows.scored + Value(row), sizeof(ScoredKey));
}

template <class T>
struct Fill {
  T* values;
  T value;
  SLOTWISE_HD void operator()(std::uint64_t i) const { values[i] = value; }
};

// The states of the rows that existed when the snapshot began.
struct RowStates {
  std::uint32_t* states;  // [used]
  std::uint32_t used;
  SLOTWISE_HD bool Has(RowIndex row) const { return Value(row) < used; }
};

// Claims the unsaved rows of a batch, for one of its occurrences each. REQUIRES: fewer than kUnsaved - 1
// occurrences.
template <class Atomics>
struct ClaimRows {
  RowStates snapshot;
  const RowIndex* rows;  // [occurrences], kNoRow where a key has none

  SLOTWISE_HD void operator()(std::uint32_t i) const {
    if (!snapshot.Has(rows[i])) return;
    std::uint32_t* const state = snapshot.states + Value(rows[i]);
    if (IsUnsaved(Atomics::Load(state))) Atomics::Store(state, kUnsaved + i);
  }

  static constexpr std::uint32_t kAhead = 24;
  void Prefetch(std::uint32_t i) const {
    if (snapshot.Has(rows[i])) PrefetchBytes(snapshot.states + Value(rows[i]), sizeof(std::uint32_t));
  }
};

// Returns whether an occurrence is the one that claimed its row.
struct HasClaimed {
  RowStates snapshot;
  const RowIndex* rows;
  SLOTWISE_HD bool operator()(std::uint32_t i) const {
    return snapshot.Has(rows[i]) && snapshot.states[Value(rows[i])] == kUnsaved + i;
  }
};

// Copies a claimed row, which one tile works on, to a free copy.
struct SaveRows {
  RowStates snapshot;
  RowsRef rows;
  const RowIndex* row_of;
  const std::uint32_t* claimers;     // [rows to save]
  const std::uint32_t* free_copies;  // [rows to save]
  float* saved;                      // [copies][floats]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t n) const {
    const RowIndex row = row_of[claimers[n]];
    const std::uint32_t copy = free_copies[n];
    CopyFloatsOut(tile, rows, row, saved + static_cast<std::size_t>(copy) * rows.floats);
    if (tile.lane() == 0) snapshot.states[Value(row)] = copy;
  }

  static constexpr std::uint32_t kAhead = 12;
  void Prefetch(std::uint32_t n) const { PrefetchFloats(rows, row_of[claimers[n]]); }
};

// Takes the states of rows that are about to be read, and sets them to kDone.
struct TakeStates {
  RowStates snapshot;
  const RowIndex* wanted;
  std::uint32_t* taken;  // [wanted]
  SLOTWISE_HD void operator()(std::uint32_t i) const {
    std::uint32_t& state = snapshot.states[Value(wanted[i])];
    taken[i] = state;
    state = kDone;
  }

  static constexpr std::uint32_t kAhead = 24;
  void Prefetch(std::uint32_t i) const {
    PrefetchBytes(snapshot.states + Value(wanted[i]), sizeof(std::uint32_t));
  }
};

// Copies a row as it was, which one tile works on, to where the host can fetch it.
struct ReadRows {
  RowsRef rows;
  const RowIndex* wanted;      // [records]
  const std::uint32_t* taken;  // [records] their states
  const float* saved;
  float* to;  // [records][floats]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t i) const {
    float* const out = to + static_cast<std::size_t>(i) * rows.floats;
    if (!IsCopied(taken[i])) return CopyFloatsOut(tile, rows, wanted[i], out);
    const float* const copy = Copy(i);
    for (std::uint32_t j = tile.lane(); j < rows.floats; j += Tile::kLanes) out[j] = copy[j];
  }

  static constexpr std::uint32_t kAhead = 12;
  void Prefetch(std::uint32_t i) const {
    if (IsCopied(taken[i])) return PrefetchRow(Copy(i), rows.floats);
    PrefetchFloats(rows, wanted[i]);
  }

  SLOTWISE_HD const float* Copy(std::uint32_t i) const {
    return saved + static_cast<std::size_t>(taken[i]) * rows.floats;
  }
};

// Returns whether the i-th row was read from a copy.
struct WasCopied {
  const std::uint32_t* taken;
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return IsCopied(taken[i]); }
};

// Appends the copies that have been read to the list of free copies, which has *size entries.
struct FreeCopies {
  const std::uint32_t* taken;
  const std::uint32_t* copied;  // places of `taken`
  std::uint32_t* free_copies;
  const std::uint32_t* size;
  SLOTWISE_HD void operator()(std::uint32_t n) const { free_copies[*size + n] = taken[copied[n]]; }
};

// Computes *to += *added - less, on one thread.
struct AddTo {
  std::uint32_t* to;
  const std::uint32_t* added;  // null: 0
  std::uint32_t less;
  SLOTWISE_HD void operator()(std::uint32_t /*i*/) const { *to += (added == nullptr ? 0 : *added) - less; }
};

struct CountsOfCopies {
  std::uint32_t wanted;
  std::uint32_t free;
};
struct ReadCounts {
  const std::uint32_t* wanted;
  const std::uint32_t* free;
  SLOTWISE_HD CountsOfCopies operator()() const { return {*wanted, *free}; }
};

// A mark of a changed row is a byte, so that threads that mark different rows never share a word.
inline constexpr std::uint8_t kChanged = 1;  // since the last snapshot with `remember` began
inline constexpr std::uint8_t kTaken = 2;    // between the one before and that one, while that one is open

struct MarkRows {
  const RowIndex* rows;  // distinct
  std::uint8_t* marks;
  SLOTWISE_HD void operator()(std::uint32_t i) const { marks[Value(rows[i])] |= kChanged; }
};

struct MarkSegments {
  Segments segments;
  std::uint8_t* marks;
  SLOTWISE_HD void operator()(std::uint32_t segment) const {
    marks[Value(segments.Row(segment))] |= kChanged;
  }
};

// Begins a snapshot with `remember`.
struct TakeMarks {
  std::uint8_t* marks;
  SLOTWISE_HD void operator()(std::uint64_t row) const {
    marks[row] = (marks[row] & kChanged) != 0 ? kTaken : 0;
  }
};
// Ends that snapshot, which was kept or not.
struct EndMarks {
  std::uint8_t* marks;
  bool kept;
  SLOTWISE_HD void operator()(std::uint64_t row) const {
    const std::uint8_t counted = kept ? kChanged : kChanged | kTaken;
    marks[row] = (marks[row] & counted) != 0 ? kChanged : 0;
  }
};

// Packs the marks of 32 rows into a word: the CPU's caches then hold the marks of many million rows while the
// cells ask for them in no order.
struct PackMarks {
  const std::uint8_t* marks;
  std::uint32_t* words;
  std::uint32_t used;
  SLOTWISE_HD void operator()(std::uint32_t w) const {
    std::uint32_t word = 0;
    const std::uint32_t first = w * 32;
    const std::uint32_t rows = used - first < 32 ? used - first : 32;
    for (std::uint32_t bit = 0; bit < rows; ++bit) {
      word |= (std::uint32_t{marks[first + bit]} & kChanged) << bit;
    }
    words[w] = word;
  }
};

// Lists the keys and rows of cells, and marks the rows as kUnsaved. Numbers all live cells, or those whose
// rows have changed (backend/concept.h).
template <bool kAll>
struct ListRows {
  static constexpr bool kNumbersMost = kAll;
  struct Listed {
    std::uint32_t row;
    SLOTWISE_HD explicit operator bool() const { return row != Value(kNoRow); }
  };

  SomeCells cells;
  const std::uint32_t* changed;  // a bit a row, unless all are listed
  RowStates snapshot;
  Key* keys;
  RowIndex* rows;

  // This has no branches, but for the rare changed row: a processor cannot predict which cells are live. A
  // mask takes a third of the time of the branch that compilers make of a condition.
  SLOTWISE_HD Listed operator()(std::uint32_t i) const {
    if constexpr (kAll) {
      const bool live = cells.Live(i);
      return {live ? Value(cells.RowAt(i)) : Value(kNoRow)};
    } else {
      const RowIndex at = cells.RowAt(i);  // arbitrary if the cell is free, and kNoRow if its key was erased
      const std::uint32_t has = snapshot.Has(at) ? 1 : 0;
      const std::uint32_t row = Value(at) & (0U - has);
      const std::uint32_t live = has & (cells.Live(i) ? 1U : 0U);
      const std::uint32_t wanted = changed[row / 32] >> row % 32 & live;
      return {wanted != 0 ? row : Value(kNoRow)};
    }
  }
  SLOTWISE_HD void Number(std::uint32_t i, Listed listed, std::uint32_t number) const {
    keys[number] = cells.KeyAt(i);
    rows[number] = RowIndex{listed.row};
    snapshot.states[listed.row] = kUnsaved;
  }
};

// Overwrites the row of the i-th record, which one tile works on.
struct LoadRecords {
  RowsRef rows;
  const RowIndex* row_of;  // [records]
  const float* from;       // [records][floats]
  const Key* keys;         // [records]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t i) const {
    CopyFloatsIn(tile, rows, row_of[i], from + static_cast<std::size_t>(i) * rows.floats);
    if (tile.lane() == 0) rows.WriteKey(row_of[i], keys[i]);
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_SNAPSHOT_H_
