// The launches over the keys of a batch and the cells of a hash table: find, add, list, erase, count, and
// rehash. Each body works on one index. A body that searches a table says which key it searches for, because
// the CPU backend hashes many keys at once (portable.h).
#ifndef SLOTWISE_KERNELS_BODY_KEY_LAUNCHES_H_
#define SLOTWISE_KERNELS_BODY_KEY_LAUNCHES_H_

#include <cstdint>

#include "kernels/body/hash_table.h"
#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

// So many searches are under way at once on the CPU: some more than the processor's caches can wait for.
inline constexpr std::uint32_t kProbesAhead = 24;

// Frees a cell of a new table.
struct FreeCells {
  HashTableRef table;
  SLOTWISE_HD void operator()(std::uint64_t cell) const { table.cells[cell] = {kFree, 0}; }
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

// Writes how many pairs of cells the searches for at most `most` of the keys look at, and 0 where there are
// fewer keys. The keys of a larger batch are chosen at even distances.
struct MeasureSearches {
  HashTableRef table;
  const Key* keys;
  std::uint32_t size;                   // of the keys, if size_on_device is null
  const std::uint32_t* size_on_device;  // the same in device memory
  std::uint32_t most;
  std::uint32_t* lengths;  // [most]
  SLOTWISE_HD void operator()(std::uint64_t i) const {
    const std::uint64_t n = size_on_device == nullptr ? size : *size_on_device;
    const std::uint64_t key = n <= most ? i : i * n / most;
    lengths[i] = key < n ? table.PairsSearchedFor(keys[key]) : 0;
  }
};

// Writes that there were no keys.
struct NoLengths {
  std::uint32_t* lengths;
  SLOTWISE_HD void operator()(std::uint64_t i) const { lengths[i] = 0; }
};

// Whether a key has a row.
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

// The keys of a batch that a launch is about: those at the listed places, or all.
struct Chosen {
  const std::uint32_t* listed;  // null: all
  SLOTWISE_HD std::uint32_t operator[](std::uint32_t i) const { return listed == nullptr ? i : listed[i]; }
};

// Stands for no cell: the key won its cell, and knows its row.
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

// Gives the keys that won no cell the rows of those that did.
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
  RowIndex* erased;            // the rows, in the order of the numbers
  Key* erased_keys = nullptr;  // [n]; null: not wanted

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
  }
};

// Lists the keys of a run of cells that have rows. They are numbered (backend/concept.h).
struct ListKeys {
  static constexpr bool kNumbersMost = true;
  HashTableRef table;
  std::uint64_t first;  // cell
  Key* listed;          // [cells of the run]
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return table.Live(first + i); }
  SLOTWISE_HD void Number(std::uint32_t i, bool /*is_live*/, std::uint32_t number) const {
    listed[number] = table.KeyAt(first + i);
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

// Copies a live cell of one table into another.
template <class Atomics>
struct Rehash {
  HashTableRef from;
  HashTableRef to;

  // No search needs the hash of the key kFree, whose cell, the last one, does not hold it as such.
  SLOTWISE_HD const HashTableRef& searched() const { return to; }
  SLOTWISE_HD Key KeyOf(std::uint64_t cell) const { return Key{from.cells[cell].key}; }
  SLOTWISE_HD void operator()(std::uint64_t cell) const {
    if (from.Live(cell)) (*this)(cell, to.HashOf(KeyOf(cell)));
  }
  SLOTWISE_HD void operator()(std::uint64_t cell, std::uint64_t hash) const {
    if (!from.Live(cell)) return;
    to.cells[to.template Claim<Atomics>(from.KeyAt(cell), hash).cell].row = from.cells[cell].row;
  }

  static constexpr std::uint64_t kAhead = kProbesAhead;
  void Prefetch(std::uint64_t cell, std::uint64_t hash) const {
    if (from.Live(cell)) to.Prefetch(hash);
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_KEY_LAUNCHES_H_
