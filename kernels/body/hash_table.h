// The hash table maps 64-bit keys to rows: open addressing with double hashing, for any number of threads at
// once.
//
// A cell is {key, row}. A cell whose key is kFree is free. Cells are only ever taken (a table that is full
// is followed by a new one), so a search ends at the key or at the first free cell on its way. Adding a key
// is one compare-and-swap of the cell's key; the thread that wins the cell gives the cell its row. No thread
// waits for a row: a thread that finds its key in a cell already remembers the cell, and the next launch
// reads the row.
//
// A keyed hash, SipHash-1-3 under the table's secret, says where a key's search begins and how it goes on, so
// that no client can choose keys whose searches meet. The owner of a key is another function of the key
// (hash.h), so the keys of one rank spread over all of its table.
//
// A search looks at cells by pairs, because a GPU reads 32 bytes from memory at once. The search looks at
// both pairs of one cache line of four cells, then at lines that are an odd number of lines apart; that
// number differs from key to key, and the steps lead to every line in the end. Where 3 cells of 4 are taken,
// a search for a key that is there reads 1.2 lines and 1.5 pairs. Searches from line to line, where keys
// crowd, would read 1.3 and 1.7, and far more for absent keys.
//
// Erasing leaves the key in its cell, with kNoRow for its row: the cell is dead. Adding the key again revives
// it (a compare-and-swap of the row has one winner), and no dead cell moves to a new table.
//
// kFree is a legal key too. No search looks for kFree: that key has a cell of its own behind the last one,
// where kFree means free and kFreeKeyIsHere means taken.
//
// Loads while other threads add are atomic and relaxed; the end of a launch publishes everything that the
// launch wrote. REQUIRES: fewer keys than cells, so that every search ends. RowStore ensures that before any
// launch.
#ifndef SLOTWISE_KERNELS_BODY_HASH_TABLE_H_
#define SLOTWISE_KERNELS_BODY_HASH_TABLE_H_

#include <cstdint>

#include "kernels/body/portable.h"
#include "kernels/body/rows.h"
#include "kernels/body/siphash.h"
#include "slotwise/types.h"

namespace slotwise::body {

struct alignas(16) Cell {
  std::uint64_t key;
  std::uint64_t row;  // a RowIndex; unused while the cell is free
};

// No sane numbering of ids begins or ends with this arbitrary value, which is a legal key all the same: see
// above.
inline constexpr std::uint64_t kFree = 0xa5b35705f87ab1e5ULL;
inline constexpr std::uint64_t kFreeKeyIsHere = ~kFree;

// A cell whose key was erased has this row.
inline constexpr std::uint64_t kDead = Value(kNoRow);

// A hash table in device memory, to be passed to launches by value.
struct HashTableRef {
  static constexpr std::uint64_t kLeastCells = 4;

  Cell* cells;         // [mask + 2]: those for searches, then that of the key kFree
  std::uint64_t mask;  // cells for searches - 1; their number is a power of two, and at least kLeastCells
  PlaceHash hash_of;   // under the table's secret

  SLOTWISE_HD std::uint64_t Cells() const { return mask + 2; }

  // A Search is the path of a key's search, which looks at `cell` and the cell behind it, then calls Next.
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
  // In a table of up to 2^33 cells, the first cell depends on bits 1 to 32 of the hash at most, and the step,
  // which is odd, on bits 33 to 63. So the two are independent of each other. In a larger table they share
  // the few bits from the 33rd on.
  SLOTWISE_HD Search SearchFor(std::uint64_t hash) const {
    constexpr std::uint64_t kCellsOfLine = 4;
    const std::uint64_t begin = hash & mask & ~std::uint64_t{1};
    return {begin, mask, begin, kCellsOfLine * (hash >> 32 | 1)};
  }

  // The functions below that take a key and its hash are for callers that know the hash already.
  SLOTWISE_HD std::uint64_t HashOf(Key key) const { return hash_of(Value(key)); }

  // Returns whether the cell is taken, and its key was not erased.
  SLOTWISE_HD bool Live(std::uint64_t cell) const {
    return cells[cell].key != kFree && cells[cell].row != kDead;
  }
  // REQUIRES: the cell is taken.
  SLOTWISE_HD Key KeyAt(std::uint64_t cell) const { return Key{cell == mask + 1 ? kFree : cells[cell].key}; }
  SLOTWISE_HD RowIndex RowAt(std::uint64_t cell) const {
    return RowIndex{static_cast<std::uint32_t>(cells[cell].row)};
  }

  // Prefetches the cache line in which the search for a key of that hash begins: most searches end there.
  void Prefetch(std::uint64_t hash) const { PrefetchBytes(&cells[SearchFor(hash).cell], sizeof(Cell)); }

  // Returns the key's row, or kNoRow. REQUIRES: no thread adds keys during the launch.
  SLOTWISE_HD RowIndex Find(Key key) const { return Find(key, HashOf(key)); }
  SLOTWISE_HD RowIndex Find(Key key, std::uint64_t hash) const {
    const std::uint64_t wanted = Value(key);
    if (wanted == kFree) return Live(mask + 1) ? RowAt(mask + 1) : kNoRow;
    for (Search at = SearchFor(hash);; at.Next()) {
      const Cell first = cells[at.cell];
      const Cell second = cells[at.cell + 1];
      if (first.key == wanted) return RowIndex{static_cast<std::uint32_t>(first.row)};
      if (first.key == kFree) return kNoRow;
      if (second.key == wanted) return RowIndex{static_cast<std::uint32_t>(second.row)};
      if (second.key == kFree) return kNoRow;
    }
  }

  // Returns the key's cell, or Cells() if no cell was ever taken for the key. REQUIRES: no thread adds keys
  // during the launch.
  SLOTWISE_HD std::uint64_t CellOf(Key key) const {
    const std::uint64_t wanted = Value(key);
    if (wanted == kFree) return cells[mask + 1].key == kFree ? Cells() : mask + 1;
    for (Search at = SearchFor(HashOf(key));; at.Next()) {
      for (std::uint64_t cell = at.cell; cell < at.cell + 2; ++cell) {
        if (cells[cell].key == wanted) return cell;
        if (cells[cell].key == kFree) return Cells();
      }
    }
  }

  // Returns how many pairs of cells the search for the key looks at, with the pair that ends the search.
  // REQUIRES: no thread adds keys during the launch.
  SLOTWISE_HD std::uint32_t PairsSearchedFor(Key key) const {
    const std::uint64_t wanted = Value(key);
    std::uint32_t pairs = 1;
    if (wanted == kFree) return pairs;
    for (Search at = SearchFor(HashOf(key));; at.Next(), ++pairs) {
      for (std::uint64_t cell = at.cell; cell < at.cell + 2; ++cell) {
        if (cells[cell].key == wanted || cells[cell].key == kFree) return pairs;
      }
    }
  }

  struct Claimed {
    std::uint64_t cell;
    bool added;  // true for exactly one claimer of a key without a cell: that claimer writes the cell's row
  };

  // Returns true to exactly one of the threads that ask for a dead cell: that thread writes the cell's row.
  template <class Atomics>
  SLOTWISE_HD bool Revive(std::uint64_t cell) const {
    return Atomics::Load(&cells[cell].row) == kDead &&
           Atomics::CompareExchange(&cells[cell].row, kDead, 0) == kDead;
  }

  // Returns the key's cell, after taking one if the key had none.
  template <class Atomics>
  SLOTWISE_HD Claimed Claim(Key key) const {
    return Claim<Atomics>(key, HashOf(key));
  }
  template <class Atomics>
  SLOTWISE_HD Claimed Claim(Key key, std::uint64_t hash) const {
    const std::uint64_t wanted = Value(key);
    if (wanted == kFree) return ClaimCell<Atomics>(mask + 1, kFreeKeyIsHere);
    for (Search at = SearchFor(hash);; at.Next()) {
      const std::uint64_t cell = at.cell;
      const std::uint64_t first = Atomics::Load(&cells[cell].key);
      const std::uint64_t second = Atomics::Load(&cells[cell + 1].key);
      if (const Trial trial = Try<Atomics>(cell, first, wanted); trial != Trial::kTaken)
        return {cell, trial == Trial::kAdded};
      if (const Trial trial = Try<Atomics>(cell + 1, second, wanted); trial != Trial::kTaken)
        return {cell + 1, trial == Trial::kAdded};
    }
  }

  // Adds a key with its row, unless the table has, or had, the key.
  template <class Atomics>
  SLOTWISE_HD void AddMoved(Key key, std::uint64_t hash, RowIndex row) const {
    const Claimed claimed = Claim<Atomics>(key, hash);
    if (claimed.added) cells[claimed.cell].row = Value(row);
  }

 private:
  enum class Trial : std::uint8_t { kTaken, kThere, kAdded };

  // Puts the key into a cell in which the thread saw `seen`, unless another key is there.
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

// The launches over the keys of a batch and the cells of a table: find, add, list, erase, count, and move.
// Each body works on one index. A body that searches a table says which key it searches for, because the CPU
// backend hashes many keys at once (portable.h).

// The number of searches under way at once on the CPU: a few more than the processor's caches can wait for.
inline constexpr std::uint32_t kProbesAhead = 24;

// Frees a cell of a new table.
struct FreeCells {
  Cell* cells;
  SLOTWISE_HD void operator()(std::uint64_t cell) const { cells[cell] = {kFree, 0}; }
};

// The cells of a table from `first` on, as launches over cells see them. A key that has a cell in the `later`
// table, into which keys move, counts there.
struct SomeCells {
  HashTableRef table;
  std::uint64_t first;
  HashTableRef later;  // its cells are null if there is none

  SLOTWISE_HD std::uint64_t size() const { return table.Cells() - first; }
  SLOTWISE_HD bool Live(std::uint64_t i) const {
    return table.Live(first + i) && (later.cells == nullptr || later.CellOf(KeyAt(i)) == later.Cells());
  }
  // See HashTableRef.
  SLOTWISE_HD Key KeyAt(std::uint64_t i) const { return table.KeyAt(first + i); }
  SLOTWISE_HD RowIndex RowAt(std::uint64_t i) const { return table.RowAt(first + i); }
};

// Writes the row of each key, or kNoRow.
struct FindRows {
  HashTableRef table;
  const Key* keys;
  RowIndex* rows;
  SLOTWISE_HD const HashTableRef& searched() const { return table; }
  SLOTWISE_HD Key KeyOf(std::uint32_t i) const { return keys[i]; }
  SLOTWISE_HD void operator()(std::uint32_t i) const { (*this)(i, table.HashOf(KeyOf(i))); }
  SLOTWISE_HD void operator()(std::uint32_t i, std::uint64_t hash) const {
    rows[i] = table.Find(keys[i], hash);
  }

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t /*i*/, std::uint64_t hash) const { table.Prefetch(hash); }
};

// Finds rows, and lists the keys without one, in no order. The absent keys are numbered (backend/concept.h).
struct FindRowsAndAbsent {
  static constexpr bool kNumbersMost = false;
  FindRows find;
  std::uint32_t* absent;

  SLOTWISE_HD const HashTableRef& searched() const { return find.table; }
  SLOTWISE_HD Key KeyOf(std::uint32_t i) const { return find.keys[i]; }
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return (*this)(i, find.table.HashOf(KeyOf(i))); }
  SLOTWISE_HD bool operator()(std::uint32_t i, std::uint64_t hash) const {
    find(i, hash);
    return find.rows[i] == kNoRow;
  }
  SLOTWISE_HD void Number(std::uint32_t i, bool /*is_absent*/, std::uint32_t number) const {
    absent[number] = i;
  }

  static constexpr std::uint32_t kAhead = FindRows::kAhead;
  void Prefetch(std::uint32_t i, std::uint64_t hash) const { find.Prefetch(i, hash); }
};

// Returns whether the key has a row.
struct RowIsThere {
  const RowIndex* rows;
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return rows[i] != kNoRow; }
};

// Adding keys takes two launches. The first one claims a cell for each chosen key, or finds the key's cell
// taken; of equal keys one wins the cell, and gets a row. The second launch lets the others read that row.

// Rows to hand out: first the rows of erased keys, from the last erased on, then rows that were never used.
struct RowSupply {
  const RowIndex* erased;
  std::uint32_t erased_rows;
  std::uint32_t first_unused;

  SLOTWISE_HD RowIndex operator()(std::uint32_t n) const {
    return n < erased_rows ? erased[erased_rows - 1 - n] : RowIndex{first_unused + (n - erased_rows)};
  }
};

// The cell of a key, and whether the key won the cell just now.
struct ClaimedCell {
  std::uint64_t cell;
  bool won;
  SLOTWISE_HD explicit operator bool() const { return won; }
};

// The keys of a batch that a launch works on: those at the listed places, or all.
struct Chosen {
  const std::uint32_t* listed;  // null: all
  SLOTWISE_HD std::uint32_t operator[](std::uint32_t i) const { return listed == nullptr ? i : listed[i]; }
};

// Stands for no cell, where a key won its cell and has its row already.
inline constexpr std::uint64_t kNoCell = ~std::uint64_t{0};

// Adds the chosen keys. The winners are numbered, and the n-th winner gets the n-th row.
template <class Atomics>
struct AddKeys {
  static constexpr bool kNumbersMost = true;
  HashTableRef table;
  const Key* keys;
  Chosen chosen;
  RowSupply supply;
  std::uint64_t* lost;  // [chosen keys] the cell of a key that did not win it, else kNoCell
  RowIndex* rows;       // [keys]
  Key* new_keys;        // [new rows]
  RowIndex* new_rows;   // [new rows]

  SLOTWISE_HD const HashTableRef& searched() const { return table; }
  SLOTWISE_HD Key KeyOf(std::uint32_t i) const { return keys[chosen[i]]; }
  SLOTWISE_HD ClaimedCell operator()(std::uint32_t i) const { return (*this)(i, table.HashOf(KeyOf(i))); }
  SLOTWISE_HD ClaimedCell operator()(std::uint32_t i, std::uint64_t hash) const {
    const auto claimed = table.template Claim<Atomics>(KeyOf(i), hash);
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
  void Prefetch(std::uint32_t /*i*/, std::uint64_t hash) const { table.Prefetch(hash); }
};

// Gives each key that did not win its cell the row of the key that did.
struct ReadRowsOfOthers {
  HashTableRef table;
  Chosen chosen;
  const std::uint64_t* lost;
  RowIndex* rows;
  SLOTWISE_HD void operator()(std::uint32_t i) const {
    if (lost[i] != kNoCell) rows[chosen[i]] = table.RowAt(lost[i]);
  }
};

// Erases keys[i]: the key's cell becomes dead, and its row may be handed out again. Keys that had a row are
// numbered.
template <class Atomics>
struct EraseKeys {
  static constexpr bool kNumbersMost = false;
  struct Erased {
    std::uint64_t row;
    SLOTWISE_HD explicit operator bool() const { return row != kDead; }
  };

  HashTableRef table;
  const Key* keys;
  RowIndex* erased;             // the rows, in the order of the numbers
  Key* erased_keys = nullptr;   // [n]; null: not wanted
  ScoredKey* scored = nullptr;  // [rows]; null if the table keeps no scores

  SLOTWISE_HD Erased operator()(std::uint32_t i) const {
    const std::uint64_t cell = table.CellOf(keys[i]);
    if (cell == table.Cells()) return {kDead};
    const std::uint64_t row = Atomics::Load(&table.cells[cell].row);
    const bool mine = row != kDead && Atomics::CompareExchange(&table.cells[cell].row, row, kDead) == row;
    return {mine ? row : kDead};
  }
  SLOTWISE_HD void Number(std::uint32_t i, Erased key, std::uint32_t number) const {
    erased[number] = RowIndex{static_cast<std::uint32_t>(key.row)};
    if (erased_keys != nullptr) erased_keys[number] = keys[i];
    if (scored != nullptr) scored[key.row].score = kNoScore;
  }
};

// Lists the keys of cells that have rows. They are numbered (backend/concept.h).
struct ListKeys {
  static constexpr bool kNumbersMost = true;
  SomeCells cells;
  Key* listed;  // [cells]
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return cells.Live(i); }
  SLOTWISE_HD void Number(std::uint32_t i, bool /*is_live*/, std::uint32_t number) const {
    listed[number] = cells.KeyAt(i);
  }
};

// Counts the distinct keys among keys[absent[...]] by adding them to a scratch table. Each distinct key is
// numbered once.
template <class Atomics>
struct CountKeys {
  static constexpr bool kNumbersMost = true;
  HashTableRef scratch;
  const Key* keys;
  const std::uint32_t* absent;

  SLOTWISE_HD const HashTableRef& searched() const { return scratch; }
  SLOTWISE_HD Key KeyOf(std::uint32_t i) const { return keys[absent[i]]; }
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return (*this)(i, scratch.HashOf(KeyOf(i))); }
  SLOTWISE_HD bool operator()(std::uint32_t i, std::uint64_t hash) const {
    return scratch.template Claim<Atomics>(KeyOf(i), hash).added;
  }
  SLOTWISE_HD void Number(std::uint32_t /*i*/, bool /*is_first*/, std::uint32_t /*number*/) const {}

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t /*i*/, std::uint64_t hash) const { scratch.Prefetch(hash); }
};

// A table that is full is followed by a new one. The keys of its live cells move to the new table: those of a
// batch before the batch is searched for, the others in any order. A key that has a cell in the new table is
// left alone: since it moved, its row may have changed.

// Moves the key of a cell of the old table, from `first` on.
template <class Atomics>
struct MoveKeys {
  HashTableRef from;
  HashTableRef to;
  std::uint64_t first;

  // The last cell, that of the key kFree, does not hold the key itself, but no search needs the key's hash.
  SLOTWISE_HD const HashTableRef& searched() const { return to; }
  SLOTWISE_HD Key KeyOf(std::uint64_t i) const { return Key{from.cells[first + i].key}; }
  SLOTWISE_HD void operator()(std::uint64_t i) const {
    if (from.Live(first + i)) (*this)(i, to.HashOf(KeyOf(i)));
  }
  SLOTWISE_HD void operator()(std::uint64_t i, std::uint64_t hash) const {
    if (from.Live(first + i))
      to.template AddMoved<Atomics>(from.KeyAt(first + i), hash, from.RowAt(first + i));
  }

  static constexpr std::uint64_t kAhead = kProbesAhead;
  void Prefetch(std::uint64_t i, std::uint64_t hash) const {
    if (from.Live(first + i)) to.Prefetch(hash);
  }
};

// Moves keys[i], if the old table has it.
template <class Atomics>
struct BringKeys {
  HashTableRef from;
  HashTableRef to;
  const Key* keys;

  SLOTWISE_HD const HashTableRef& searched() const { return to; }
  SLOTWISE_HD Key KeyOf(std::uint32_t i) const { return keys[i]; }
  SLOTWISE_HD void operator()(std::uint32_t i) const { (*this)(i, to.HashOf(KeyOf(i))); }
  SLOTWISE_HD void operator()(std::uint32_t i, std::uint64_t hash) const {
    if (const RowIndex row = from.Find(keys[i], hash); row != kNoRow)
      to.template AddMoved<Atomics>(keys[i], hash, row);
  }

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t /*i*/, std::uint64_t hash) const {
    from.Prefetch(hash);
    to.Prefetch(hash);
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_HASH_TABLE_H_
