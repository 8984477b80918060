// The hash table: 64-bit keys to rows, open addressing with double hashing, any number of threads at once.
//
// A cell is {key, row}. A cell whose key is kFree is free; cells are only ever taken (a rehash copies into a new
// table), so a search ends at the key or at the first free cell that it looks at. Adding is one compare-and-swap of the
// key; the one thread that wins it gives the cell its row. Nobody waits for that: who finds a cell with the key already
// there remembers the cell, and reads its row in the next launch.
//
// A search looks at cells by pairs, 32 bytes, which is what a GPU reads from memory at once; first at both pairs of one
// cache line of four cells, then at lines that are an odd number of lines apart, which is another for other keys and in
// the end leads to every line. At 3 cells of 4 taken, 1.2 lines and 1.5 pairs a key that is there; searching line after
// line, where keys crowd, it would be 1.3 and 1.7, and far more for a key that is not there.
//
// Erasing leaves the key in its cell, with kNoRow for its row: the cell is dead. Adding the key again revives it (a
// compare-and-swap of the row has one winner), and a rehash leaves dead cells behind.
//
// kFree is a legal key too. It is never searched for: it has a cell of its own behind the last one, where kFree means
// free and kFreeKeyIsHere means taken.
//
// Loads while others add are atomic and relaxed; the end of a launch publishes everything it wrote.
// REQUIRES: fewer keys than cells, so that every search ends. The owner (shard.inl) sees to that before any launch.
#ifndef SLOTWISE_KERNELS_BODY_HASH_TABLE_H_
#define SLOTWISE_KERNELS_BODY_HASH_TABLE_H_

#include <cstdint>

#include "kernels/body/hash.h"
#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

struct alignas(16) Cell {
  std::uint64_t key;
  std::uint64_t row;  // a RowIndex; unused while the cell is free
};

// An arbitrary value that no sane numbering of ids begins or ends with; that it is legal all the same, see above.
inline constexpr std::uint64_t kFree = 0xa5b35705f87ab1e5ULL;
inline constexpr std::uint64_t kFreeKeyIsHere = ~kFree;

// The row of a cell whose key was erased.
inline constexpr std::uint64_t kDead = Value(kNoRow);

struct TableRef {
  static constexpr std::uint64_t kLeastCells = 4;

  Cell* cells;         // [mask + 2]: those for searches, then that of the key kFree
  std::uint64_t mask;  // cells for searches - 1; their number is a power of two, and at least kLeastCells

  SLOTWISE_HD std::uint64_t Cells() const { return mask + 2; }

  // The pairs of cells that a key's search looks at: `cell` and the one behind it.
  struct Search {
    std::uint64_t cell;
    std::uint64_t mask;
    std::uint64_t begin;
    std::uint64_t step;  // from line to line

    SLOTWISE_HD void Next() {
      const bool line_is_done = ((cell ^ begin) & 2) != 0;
      cell ^= 2;
      if (line_is_done) cell = (cell + step) & mask;
    }
  };
  SLOTWISE_HD Search SearchFor(std::uint64_t key) const {
    constexpr std::uint64_t kCellsOfLine = 4;
    const std::uint64_t hash = Mix64(key);
    const std::uint64_t begin = hash & mask & ~std::uint64_t{1};
    return {begin, mask, begin, kCellsOfLine * (hash >> 32 | 1)};
  }

  // Taken, and its key was not erased.
  SLOTWISE_HD bool Live(std::uint64_t cell) const {
    return cells[cell].key != kFree && cells[cell].row != kDead;
  }
  // REQUIRES: the cell is taken.
  SLOTWISE_HD Key KeyAt(std::uint64_t cell) const { return Key{cell == mask + 1 ? kFree : cells[cell].key}; }
  SLOTWISE_HD RowIndex RowAt(std::uint64_t cell) const {
    return RowIndex{static_cast<std::uint32_t>(cells[cell].row)};
  }

  // Where the key's search begins: most end in that cache line.
  void Prefetch(Key key) const { PrefetchBytes(&cells[SearchFor(Value(key)).cell], sizeof(Cell)); }

  // The key's row, or kNoRow. REQUIRES: nobody adds during the launch.
  SLOTWISE_HD RowIndex Find(Key key) const {
    const std::uint64_t wanted = Value(key);
    if (wanted == kFree) return Live(mask + 1) ? RowAt(mask + 1) : kNoRow;
    for (Search at = SearchFor(wanted);; at.Next()) {
      const Cell first = cells[at.cell];
      const Cell second = cells[at.cell + 1];
      if (first.key == wanted) return RowIndex{static_cast<std::uint32_t>(first.row)};
      if (first.key == kFree) return kNoRow;
      if (second.key == wanted) return RowIndex{static_cast<std::uint32_t>(second.row)};
      if (second.key == kFree) return kNoRow;
    }
  }

  // The key's cell, or Cells() if no cell was ever taken for it. REQUIRES: nobody adds during the launch.
  SLOTWISE_HD std::uint64_t CellOf(Key key) const {
    const std::uint64_t wanted = Value(key);
    if (wanted == kFree) return cells[mask + 1].key == kFree ? Cells() : mask + 1;
    for (Search at = SearchFor(wanted);; at.Next()) {
      for (std::uint64_t cell = at.cell; cell < at.cell + 2; ++cell) {
        if (cells[cell].key == wanted) return cell;
        if (cells[cell].key == kFree) return Cells();
      }
    }
  }

  struct Claimed {
    std::uint64_t cell;
    bool added;  // true for exactly one claimer of a key without a cell: the cell's row is its to write
  };

  // True for exactly one of those who ask for a dead cell: its row is theirs to write.
  template <class Atomics>
  SLOTWISE_HD bool Revive(std::uint64_t cell) const {
    return Atomics::Load(&cells[cell].row) == kDead &&
           Atomics::CompareExchange(&cells[cell].row, kDead, 0) == kDead;
  }

  // The key's cell, taken for it if it had none.
  template <class Atomics>
  SLOTWISE_HD Claimed Claim(Key key) const {
    const std::uint64_t wanted = Value(key);
    if (wanted == kFree) return ClaimCell<Atomics>(mask + 1, kFreeKeyIsHere);
    for (Search at = SearchFor(wanted);; at.Next()) {
      const std::uint64_t cell = at.cell;
      const std::uint64_t first = Atomics::Load(&cells[cell].key);
      const std::uint64_t second = Atomics::Load(&cells[cell + 1].key);
      if (const Trial trial = Try<Atomics>(cell, first, wanted); trial != Trial::kTaken)
        return {cell, trial == Trial::kAdded};
      if (const Trial trial = Try<Atomics>(cell + 1, second, wanted); trial != Trial::kTaken)
        return {cell + 1, trial == Trial::kAdded};
    }
  }

 private:
  enum class Trial : std::uint8_t { kTaken, kThere, kAdded };

  // Puts the key into a cell that was seen to hold `seen`, unless another key is there.
  template <class Atomics>
  SLOTWISE_HD Trial Try(std::uint64_t cell, std::uint64_t seen, std::uint64_t wanted) const {
    if (seen == wanted) return Trial::kThere;
    if (seen != kFree) return Trial::kTaken;
    const std::uint64_t before = Atomics::CompareExchange(&cells[cell].key, kFree, wanted);
    if (before == kFree) return Trial::kAdded;
    return before == wanted ? Trial::kThere : Trial::kTaken;
  }

  template <class Atomics>
  SLOTWISE_HD Claimed ClaimCell(std::uint64_t cell, std::uint64_t mark) const {
    return {cell, Atomics::CompareExchange(&cells[cell].key, kFree, mark) == kFree};
  }
};

// The bodies of launches, each over an index.

// How many searches are under way at once on the CPU: about as many as its caches can wait for, and some.
inline constexpr std::uint32_t kProbesAhead = 20;

struct FreeCells {
  TableRef table;
  SLOTWISE_HD void operator()(std::uint64_t cell) const { table.cells[cell] = {kFree, 0}; }
};

struct FindRows {
  TableRef table;
  const Key* keys;
  RowIndex* rows;
  SLOTWISE_HD void operator()(std::uint32_t i) const { rows[i] = table.Find(keys[i]); }

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t i) const { table.Prefetch(keys[i]); }
};

// The same, and a list of the keys without a row, in no order. Numbered (backend/concept.h): the absent ones.
struct FindRowsAndAbsent {
  static constexpr bool kNumbersMost = false;
  FindRows find;
  std::uint32_t* absent;

  SLOTWISE_HD bool operator()(std::uint32_t i) const {
    find(i);
    return find.rows[i] == kNoRow;
  }
  SLOTWISE_HD void Number(std::uint32_t i, bool /*is_absent*/, std::uint32_t number) const {
    absent[number] = i;
  }

  static constexpr std::uint32_t kAhead = FindRows::kAhead;
  void Prefetch(std::uint32_t i) const { find.Prefetch(i); }
};

struct RowIsThere {
  const RowIndex* rows;
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return rows[i] != kNoRow; }
};

// Adding keys takes two launches. The first claims a cell for each of keys[absent[...]], or finds it taken; of equal keys
// one wins, and gets a row. The others can read it in the next.

// Rows to hand out: those of erased keys first, the last erased first, then those never used.
struct RowSupply {
  const RowIndex* erased;
  std::uint32_t erased_rows;
  std::uint32_t first_unused;

  SLOTWISE_HD RowIndex operator()(std::uint32_t n) const {
    return n < erased_rows ? erased[erased_rows - 1 - n] : RowIndex{first_unused + (n - erased_rows)};
  }
};

// Where a key is, and whether it won the cell just now.
struct ClaimedCell {
  std::uint64_t cell;
  bool won;
  SLOTWISE_HD explicit operator bool() const { return won; }
};

// Which keys of a batch are meant: those with the listed numbers, or all.
struct Chosen {
  const std::uint32_t* listed;  // null: all
  SLOTWISE_HD std::uint32_t operator[](std::uint32_t i) const { return listed == nullptr ? i : listed[i]; }
};

// No cell: the key won its own, and knows its row.
inline constexpr std::uint64_t kNoCell = ~std::uint64_t{0};

// Numbered: the winners. The n-th gets the n-th row.
template <class Atomics>
struct AddKeys {
  static constexpr bool kNumbersMost = true;
  TableRef table;
  const Key* keys;
  Chosen chosen;
  RowSupply supply;
  std::uint64_t* lost;  // [chosen keys] the cell of those that did not win it
  RowIndex* rows;       // [keys]
  Key* new_keys;        // [new rows]
  RowIndex* new_rows;   // [new rows]

  SLOTWISE_HD ClaimedCell operator()(std::uint32_t i) const {
    const auto claimed = table.template Claim<Atomics>(keys[chosen[i]]);
    const bool won = claimed.added || table.template Revive<Atomics>(claimed.cell);
    lost[i] = won ? kNoCell : claimed.cell;
    return {claimed.cell, won};
  }
  SLOTWISE_HD void Number(std::uint32_t i, ClaimedCell claimed, std::uint32_t number) const {
    const RowIndex row = supply(number);
    Atomics::Store(&table.cells[claimed.cell].row, Value(row));
    rows[chosen[i]] = row;
    new_keys[number] = keys[chosen[i]];
    new_rows[number] = row;
  }

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t i) const { table.Prefetch(keys[chosen[i]]); }
};

struct ReadRowsOfOthers {
  TableRef table;
  Chosen chosen;
  const std::uint64_t* lost;
  RowIndex* rows;
  SLOTWISE_HD void operator()(std::uint32_t i) const {
    if (lost[i] != kNoCell) rows[chosen[i]] = table.RowAt(lost[i]);
  }
};

// Erases keys[i]: its cell is dead, its row free to be handed out again. Numbered: keys that had a row, by that row.
template <class Atomics>
struct EraseKeys {
  static constexpr bool kNumbersMost = false;
  struct Erased {
    std::uint64_t row;
    SLOTWISE_HD explicit operator bool() const { return row != kDead; }
  };

  TableRef table;
  const Key* keys;
  RowIndex* erased;  // grows from the front

  SLOTWISE_HD Erased operator()(std::uint32_t i) const {
    const std::uint64_t cell = table.CellOf(keys[i]);
    if (cell == table.Cells()) return {kDead};
    const std::uint64_t row = Atomics::Load(&table.cells[cell].row);
    const bool mine = row != kDead && Atomics::CompareExchange(&table.cells[cell].row, row, kDead) == row;
    return {mine ? row : kDead};
  }
  SLOTWISE_HD void Number(std::uint32_t /*i*/, Erased key, std::uint32_t number) const {
    erased[number] = RowIndex{static_cast<std::uint32_t>(key.row)};
  }
};

// Which key has which row: of rows that no key has, kFree, and that of the key kFree itself likewise.

struct FillKeys {
  Key* keys;  // [rows]
  SLOTWISE_HD void operator()(std::uint32_t row) const { keys[row] = Key{kFree}; }
};

struct CopyKeyOfRow {
  TableRef table;
  Key* keys;  // [rows]
  SLOTWISE_HD void operator()(std::uint64_t cell) const {
    if (table.Live(cell)) keys[Value(table.RowAt(cell))] = table.KeyAt(cell);
  }
};

struct KeyIsNotFree {
  SLOTWISE_HD bool operator()(Key key) const { return Value(key) != kFree; }
};

// Counts the distinct keys among keys[absent[...]], as additions to a scratch table. Numbered: each key once.
template <class Atomics>
struct CountKeys {
  static constexpr bool kNumbersMost = true;
  TableRef scratch;
  const Key* keys;
  const std::uint32_t* absent;

  SLOTWISE_HD bool operator()(std::uint32_t i) const {
    return scratch.template Claim<Atomics>(keys[absent[i]]).added;
  }
  SLOTWISE_HD void Number(std::uint32_t /*i*/, bool /*is_first*/, std::uint32_t /*number*/) const {}

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t i) const { scratch.Prefetch(keys[absent[i]]); }
};

// Copies a cell of the old table into another.
template <class Atomics>
struct Rehash {
  TableRef from;
  TableRef to;

  SLOTWISE_HD void operator()(std::uint64_t cell) const {
    if (!from.Live(cell)) return;
    to.cells[to.template Claim<Atomics>(from.KeyAt(cell)).cell].row = from.cells[cell].row;
  }

  static constexpr std::uint64_t kAhead = kProbesAhead;
  void Prefetch(std::uint64_t cell) const {
    if (from.Live(cell)) to.Prefetch(from.KeyAt(cell));
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_HASH_TABLE_H_
