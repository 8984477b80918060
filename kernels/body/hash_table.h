// The hash table maps 64-bit keys to rows: open addressing with double hashing, for any number of threads at
// once.
//
// A cell is {key, row}. A cell whose key is kFree is free. Cells are only ever taken (a rehash copies into a
// new table), so a search ends at the key or at the first free cell on its way. Adding a key is one
// compare-and-swap of the cell's key; the thread that wins the cell gives the cell its row. No thread waits
// for a row: a thread that finds its key in a cell already remembers the cell, and the next launch reads the
// row.
//
// Where a key's search begins and how it goes on comes from a keyed hash, SipHash-1-3 under the table's
// secret, so that no client can choose keys whose searches meet. Who owns a key is another function of it
// (hash.h), so the keys of one rank spread over all of its table.
//
// A search looks at cells by pairs, because a GPU reads 32 bytes from memory at once. The search looks at
// both pairs of one cache line of four cells, then at lines that are an odd number of lines apart; that
// number differs from key to key, and the steps lead to every line in the end. Where 3 cells of 4 are taken,
// a search for a key that is there reads 1.2 lines and 1.5 pairs. Searches from line to line, where keys
// crowd, would read 1.3 and 1.7, and far more for absent keys.
//
// Erasing leaves the key in its cell, with kNoRow for its row: the cell is dead. Adding the key again revives
// it (a compare-and-swap of the row has one winner), and a rehash leaves dead cells behind.
//
// kFree is a legal key too. No search looks for kFree: that key has a cell of its own behind the last one,
// where kFree means free and kFreeKeyIsHere means taken.
//
// Loads while other threads add are atomic and relaxed; the end of a launch publishes everything that the
// launch wrote. REQUIRES: fewer keys than cells, so that every search ends. RowStore sees to that before any
// launch.
#ifndef SLOTWISE_KERNELS_BODY_HASH_TABLE_H_
#define SLOTWISE_KERNELS_BODY_HASH_TABLE_H_

#include <cstdint>

#include "kernels/body/portable.h"
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

  // The way of a search: a key's search looks at `cell` and the cell behind it, then calls Next.
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
  // Of a table of up to 2^33 cells the first cell takes bits 1 to 32 of the hash at most, and the step, which
  // is odd, bits 33 to 63. So the two are independent of each other; of a larger table they share the few
  // bits from the 33rd on.
  SLOTWISE_HD Search SearchFor(std::uint64_t hash) const {
    constexpr std::uint64_t kCellsOfLine = 4;
    const std::uint64_t begin = hash & mask & ~std::uint64_t{1};
    return {begin, mask, begin, kCellsOfLine * (hash >> 32 | 1)};
  }

  // The functions below that take a key and its hash are for callers that know the hash already.
  SLOTWISE_HD std::uint64_t HashOf(Key key) const { return hash_of(Value(key)); }

  // Whether the cell is taken, and its key was not erased.
  SLOTWISE_HD bool Live(std::uint64_t cell) const {
    return cells[cell].key != kFree && cells[cell].row != kDead;
  }
  // REQUIRES: the cell is taken.
  SLOTWISE_HD Key KeyAt(std::uint64_t cell) const { return Key{cell == mask + 1 ? kFree : cells[cell].key}; }
  SLOTWISE_HD RowIndex RowAt(std::uint64_t cell) const {
    return RowIndex{static_cast<std::uint32_t>(cells[cell].row)};
  }

  // Asks for the cache line in which the search for a key of that hash begins: most searches end there.
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

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_HASH_TABLE_H_
