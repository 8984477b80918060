// A GrowingTable is the hash table of a shard, on every backend. It grows while it serves.
//
// Included by row_store.inl.
#ifndef SLOTWISE_KERNELS_GROWING_TABLE_INL_
#define SLOTWISE_KERNELS_GROWING_TABLE_INL_

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "kernels/backend/concept.h"
#include "kernels/body/hash_table.h"
#include "kernels/shard.h"
#include "kernels/slow_growth.h"
#include "slotwise/sizing.h"

namespace slotwise {

// A table that is full, of dead cells perhaps, is followed by another one, in three steps:
//
// 1. The next table's memory is taken, and its cells are freed. Meanwhile the old table takes a few keys more
//    than it should, so that not all cells are freed at once.
// 2. Then the next table serves, and the old one beside it. The keys of a batch are brought from the old
//    table to the new one before anything else looks for them, so launches know one table.
// 3. All other keys follow, run by run of the old table's cells, and the old table's memory is given back.
//
// A batch does a share of that work: as much as the table's growth since the last batch asks for, so that
// each step ends in time, and a least number of cells besides. Only where a batch finds no room does it do
// what is left. The old table is never written: a key that has a cell in the new table counts there, whether
// live or dead.
// Thread-safety: same as the queue.
template <Backend B>
class GrowingTable {
 public:
  using Queue = typename B::Queue;
  using Atomics = typename B::Atomics;

  // Makes the first table, with room for `keys` keys. Throws std::bad_alloc.
  GrowingTable(Queue& queue, const body::PlaceHash& hash_of, float max_load, std::uint64_t keys)
      : hash_of_(hash_of), max_load_(max_load) {
    TakeNext(queue, CellsFor(keys));
    FreeNext(queue, next_total());
    Switch(0);
  }

  // Returns the table in which a batch's keys are, once Bring was called for them.
  const body::HashTableRef& Ref() const { return table_; }
  // Returns how many tables there have been until now.
  std::uint64_t tables() const { return tables_; }
  // Returns the bytes of all cells, those of the old and of the next table too.
  std::uint64_t bytes() const {
    return (table_.Cells() + next_total() + (old_.cells == nullptr ? 0 : old_.Cells())) * sizeof(body::Cell);
  }
  // Returns of how many cells of the old table the keys are still to move.
  std::uint64_t cells_to_move() const { return old_.cells == nullptr ? 0 : old_.Cells() - moved_; }
  // Returns how many cells so many keys need.
  std::uint64_t CellsFor(std::uint64_t keys) const { return sizing::CellsFor(keys, max_load_); }

  // Returns how many cells for searches the table has, or the next one if its memory is taken.
  std::uint64_t cells() const { return next_size_ > 0 ? next_size_ : table_.mask + 1; }

  bool HasRoomFor(std::uint64_t more) const {
    return CellsFor(taken_ + more) <= table_.mask + 1 ||
           (next_size_ > 0 && taken_ + more <= MostTaken(/*meanwhile=*/true));
  }
  // Returns the bytes that a table takes that has room for `more` keys beside `keys`, which this one has; 0
  // if this one has room, or if those bytes are taken.
  std::uint64_t BytesOfNext(std::uint64_t keys, std::uint64_t more) const {
    const std::uint64_t cells = CellsToHold(keys + more);
    return HasRoomFor(more) || cells <= next_size_ ? 0 : sizing::BytesOfCells(cells);
  }

  // Makes room for `more` keys beside `keys`, which the table has. Throws std::bad_alloc, and then no key has
  // moved but from the old table.
  void MakeRoomFor(Queue& queue, std::uint64_t keys, std::uint64_t more) {
    if (HasRoomFor(more)) return;
    ReserveFor(queue, keys + more);
    const bool is_large = next_size_ > SlowGrowth::CellsABatch(B::kCellsMovedABatch);
    if (is_large && HasRoomFor(more) && !ExactGrowth::IsAsked()) return;
    FreeNext(queue, next_total());
    Switch(keys);
    Move(queue, ExactGrowth::IsAsked() ? old_.Cells() : SlowGrowth::CellsABatch(B::kCellsMovedABatch));
  }
  // Makes sure that MakeRoomFor(keys, more) will have memory, once the table has `keys` keys. Throws
  // std::bad_alloc.
  void ReserveBehind(Queue& queue, std::uint64_t keys, std::uint64_t more) {
    if (!HasRoomFor(more)) ReserveFor(queue, keys + more);
  }

  // Does a batch's share of the growth of a table that has `keys` keys. Does not wait. The keys of a batch
  // are to be brought after this call.
  void GoOn(Queue& queue, std::uint64_t keys) {
    const std::uint64_t added = std::exchange(added_, 0);
    if (old_.cells != nullptr) {
      Move(queue, Share(cells_to_move(), added, MostTaken(false), B::kCellsMovedABatch));
    } else if (next_size_ > 0) {
      FreeNext(queue, Share(next_total() - freed_, added, MostTaken(true), B::kCellsFreedABatch));
      if (freed_ == next_total()) Switch(keys);
    }
  }

  // Gives back the memory of the old table. Returns whether there was one.
  bool GiveBack(Queue& queue) {
    const bool gives = old_.cells != nullptr;
    Move(queue, cells_to_move());
    return gives;
  }

  // Brings those of `n` keys that have a cell in the old table alone. If `size` is not null, the keys are
  // *size, and n or fewer. Does not wait.
  void Bring(Queue& queue, const Key* keys, std::uint32_t n, const std::uint32_t* size = nullptr) {
    if (old_.cells == nullptr) return;
    const body::BringKeys<Atomics> bring{old_, table_, keys};
    size == nullptr ? B::ForEach(queue, n, bring) : B::ForEachUpTo(queue, n, size, bring);
  }

  // Says that keys took at most `count` cells.
  void Added(std::uint64_t count) {
    taken_ += count;
    added_ += count;
  }

  // Calls f(body::SomeCells) once or twice, so that each live key is a live one of those cells.
  template <class F>
  void ForEachPart(F f) const {
    f(body::SomeCells{table_, 0, {nullptr, 0, hash_of_}});
    if (old_.cells != nullptr) f(body::SomeCells{old_, moved_, table_});
  }

 private:
  std::uint64_t next_total() const { return next_size_ == 0 ? 0 : next_size_ + 1; }

  // Returns how many cells of the table may be taken: max_load of them, and while the next table's cells are
  // being freed up to an eighth more, but of those that max_load leaves free no more than a quarter.
  std::uint64_t MostTaken(bool meanwhile) const {
    const float more = meanwhile ? std::min(max_load_ / 8, (1 - max_load_) / 4) : 0;
    return static_cast<std::uint64_t>(static_cast<double>(table_.mask + 1) * (max_load_ + more));
  }

  // Returns how many of the `left` cells a batch works on, where `added` keys have come since the last batch,
  // and the work is to end when most_taken cells are taken. The factor makes up for batches that bring more
  // than the last one.
  std::uint64_t Share(std::uint64_t left, std::uint64_t added, std::uint64_t most_taken,
                      std::uint64_t least) const {
    if (ExactGrowth::IsAsked()) return left;
    constexpr double kAhead = 1.25;
    const double keys_left = static_cast<double>(most_taken > taken_ ? most_taken - taken_ : 1);
    const double share = kAhead * static_cast<double>(left) * static_cast<double>(added) / keys_left;
    return SlowGrowth::CellsABatch(least) +
           static_cast<std::uint64_t>(std::min(share, static_cast<double>(left)));
  }

  // Returns how many cells to take for so many keys in all. If dead cells alone are in the way, the table
  // that leaves them behind has to have room for a while: else a table that is full up to a few keys, of
  // which some come and go, would be followed by the next with every batch.
  std::uint64_t CellsToHold(std::uint64_t keys) const {
    const std::uint64_t now = table_.mask + 1;
    const std::uint64_t needed = CellsFor(keys);
    return needed > now ? needed : std::max(now, CellsFor(keys + keys / 8));
  }

  // Takes memory for a next table that holds `keys` keys, unless it is there. Throws std::bad_alloc.
  void ReserveFor(Queue& queue, std::uint64_t keys) {
    Move(queue, cells_to_move());
    TakeNext(queue, CellsToHold(keys));
  }
  void TakeNext(Queue& queue, std::uint64_t cells) {
    if (next_size_ >= cells) return;
    next_memory_ = {};
    next_size_ = freed_ = 0;
    if (sizing::BytesOfCells(cells) > B::MemoryForTables(queue)) throw std::bad_alloc();
    next_memory_.Reserve(queue, cells + 1);
    next_size_ = cells;
  }

  // Frees some more cells of the next table.
  void FreeNext(Queue& queue, std::uint64_t cells) {
    cells = std::min(cells, next_total() - freed_);
    B::ForEach(queue, cells, body::FreeCells{next_memory_.data() + freed_});
    freed_ += cells;
  }

  // Lets the next table serve, beside the old one if that has keys. REQUIRES: all its cells are free.
  void Switch(std::uint64_t keys) {
    if (table_.cells != nullptr) old_ = table_;
    old_memory_ = std::exchange(memory_, std::exchange(next_memory_, {}));
    table_ = {memory_.data(), next_size_ - 1, hash_of_};
    moved_ = next_size_ = freed_ = 0;
    taken_ = keys;
    ++tables_;
  }

  // Moves the keys of some more cells of the old table; behind the last one the table goes.
  void Move(Queue& queue, std::uint64_t cells) {
    if (old_.cells == nullptr) return;
    cells = std::min(cells, cells_to_move());
    B::ForEach(queue, cells, body::MoveKeys<Atomics>{old_, table_, moved_});
    moved_ += cells;
    if (moved_ < old_.Cells()) return;
    old_ = {nullptr, 0, hash_of_};
    old_memory_ = {};
  }

  using Memory = typename B::template Scratch<body::Cell>;

  const body::PlaceHash hash_of_;  // of all tables
  const float max_load_;
  body::HashTableRef table_{nullptr, 0, hash_of_};
  Memory memory_;
  body::HashTableRef old_{nullptr, 0, hash_of_};  // its cells are null if there is none
  Memory old_memory_;
  std::uint64_t moved_ = 0;  // cells of the old table, of which the keys are in this one
  Memory next_memory_;
  std::uint64_t next_size_ = 0;  // cells for searches of the next table; 0: there is none
  std::uint64_t freed_ = 0;      // cells of the next table that are free
  std::uint64_t taken_ = 0;      // an upper bound, dead cells and keys of the old table included
  std::uint64_t added_ = 0;      // of those, since the last GoOn
  std::uint64_t tables_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_GROWING_TABLE_INL_
