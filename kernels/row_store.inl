// A RowStore has the keys and rows of one shard, on every backend.
//
// Included by shard.inl, and by its test.
#ifndef SLOTWISE_KERNELS_ROW_STORE_INL_
#define SLOTWISE_KERNELS_ROW_STORE_INL_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/backend/concept.h"
#include "kernels/body/alter.h"
#include "kernels/body/hash_table.h"
#include "kernels/body/rows.h"
#include "kernels/body/siphash.h"
#include "kernels/body/snapshot.h"
#include "kernels/changes.inl"
#include "kernels/growing_table.inl"
#include "kernels/hash_secret.h"
#include "kernels/row_memory.inl"
#include "kernels/shard.h"
#include "kernels/slow_growth.h"
#include "slotwise/sizing.h"

namespace slotwise {

// The hash table grows as growing_table.inl says, and rows grow in place. The store owns the memory of both,
// and the scratch for adding and erasing keys.
// Thread-safety: same as the queue.
template <Backend B>
class RowStore {
 public:
  using Queue = typename B::Queue;
  using Atomics = typename B::Atomics;

  // The store begins with room for `initial_rows` rows and holds at most `max_rows`. REQUIRES:
  // Validate(options) is OK. Throws std::bad_alloc.
  RowStore(Queue& queue, const TableOptions& options, const HashSecret& secret, std::uint64_t initial_rows,
           std::uint64_t max_rows = kMaxRowsPerShard)
      : max_rows_(std::min({options.max_rows, max_rows, kMaxRowsPerShard})),
        addresses_(max_rows_),
        options_(options),
        hash_of_(secret.low(), secret.high()),
        rows_(queue, options, max_rows_),
        erased_(queue, max_rows_) {
    const std::uint64_t rows =
        std::clamp<std::uint64_t>(initial_rows, SlowGrowth::FirstRows(kFirstRows), kMaxRowsPerShard);
    const std::uint64_t first_rows = std::min(rows, max_rows_);
    // Checks the memory of both before it takes either, because taking gigabytes is slow.
    CheckMemory(queue, sizing::BytesOfCells(sizing::CellsFor(rows, options.max_load)) +
                           rows_.BytesOf(first_rows) + first_rows * B::KeptBesideARow());
    table_.emplace(queue, hash_of_, options.max_load, rows);
    rows_.Grow(first_rows);
    listed_rows_ = first_rows;
    CountBytes();
  }

  // rows() counts the rows that keys have, rows_used() the rows handed out so far: erased keys' rows are the
  // difference.
  std::uint32_t rows() const { return rows_used_ - erased_rows_; }
  std::uint32_t rows_used() const { return rows_used_; }
  std::uint64_t max_rows() const { return max_rows_; }
  const TableOptions& options() const { return options_; }
  // Returns the table that has the keys of a batch, once Bring was called for them.
  body::HashTableRef hash_table() { return table_->Ref(); }
  // Returns how many hash tables the store has made until now; a later one may be larger.
  std::uint64_t rehashes() const { return table_->tables(); }
  body::RowsRef values() const { return rows_.Ref(); }

  ShardUsage Usage() const {
    return {rows(), table_->cells(), table_->bytes() + rows_.bytes(), table_->cells_to_move()};
  }

  // Returns whether `more` keys can get rows. Memory comes in pieces of its own size, so there may be memory
  // for more rows than the table may have.
  bool HasRoomFor(std::uint64_t more) const {
    return rows() + more <= max_rows_ && RowsUsedWith(more) <= std::min(RowsWithMemory(), listed_rows_) &&
           table_->HasRoomFor(more);
  }

  // Returns the bytes of the hash table that the store makes for `more` keys, beside the one that it has; 0
  // if that one has room.
  std::uint64_t BytesOfNextTable(std::uint64_t more) const { return table_->BytesOfNext(rows(), more); }

  // See GrowingTable.
  void GoOn(Queue& queue) {
    table_->GoOn(queue, rows());
    CountBytes();
  }
  void Bring(Queue& queue, const Key* keys, std::uint32_t n, const std::uint32_t* size = nullptr) {
    table_->Bring(queue, keys, n, size);
  }
  template <class F>
  void ForEachPart(F f) const {
    table_->ForEachPart(f);
  }
  // Calls f(cells, n) for runs of n cells that together are all of ForEachPart, each short enough that
  // scratch for it does not grow with the table.
  template <class F>
  void ForEachRunOfCells(F f) const {
    constexpr std::uint64_t kCellsAtOnce = std::uint64_t{1} << 20;
    ForEachPart([&](body::SomeCells cells) {
      while (cells.size() > 0) {
        const auto n = static_cast<std::uint32_t>(std::min(kCellsAtOnce, cells.size()));
        f(std::as_const(cells), n);
        cells.first += n;
      }
    });
  }

  // Makes room for `more` keys and their rows. Throws std::bad_alloc, and then nothing has changed.
  // REQUIRES: rows() + more <= max_rows().
  void MakeRoomFor(Queue& queue, std::uint64_t more) {
    table_->MakeRoomFor(queue, rows(), more);
    CountBytes();
    MakeRows(queue, RowsUsedWith(more));
  }

  // Makes sure that MakeRoomFor(more) will have memory once `erased` rows are erased. Throws std::bad_alloc,
  // and then nothing has changed. REQUIRES: erased <= rows(); rows() - erased + more <= max_rows().
  void ReserveBehind(Queue& queue, std::uint64_t erased, std::uint64_t more) {
    const std::uint64_t erased_in_all = erased_rows_ + erased;
    MakeRows(queue, rows_used_ + (more - std::min(more, erased_in_all)));
    table_->ReserveBehind(queue, this->rows() - erased, more);
    CountBytes();
  }

  // Reserves scratch for BeginAdd of n keys. Throws std::bad_alloc.
  void ReserveAdd(Queue& queue, std::uint32_t n) {
    lost_.Reserve(queue, n);
    new_keys_.Reserve(queue, n);
    new_rows_.Reserve(queue, n);
  }

  // Frees the scratch of BeginAdd and Erase. REQUIRES: no batch needs it any more.
  void FreeScratch() {
    lost_ = {};
    new_keys_ = {};
    new_rows_ = {};
    erased_keys_ = {};
  }

  // Gives each distinct one of the n chosen keys a row if it has none, and writes the rows of all chosen
  // keys. Does not wait; FinishAdd or FinishAddWithoutValues comes next. REQUIRES: HasRoomFor those;
  // ReserveAdd(n).
  void BeginAdd(Queue& queue, const Key* keys, body::Chosen chosen, std::uint32_t n, RowIndex* rows) {
    const body::RowSupply supply{erased_.data(), erased_rows_, rows_used_};
    B::ForEachNumbered(queue, n, nullptr,
                       body::AddKeys<Atomics>{hash_table(), keys, chosen, supply, lost_.data(), rows,
                                              new_keys_.data(), new_rows_.data()},
                       added_);
    B::ForEach(queue, n, body::ReadRowsOfOthers{hash_table(), chosen, lost_.data(), rows});
  }

  // Writes the rows of the keys that BeginAdd gave one, with `score`. Returns their number; waits until the
  // host knows it.
  std::uint32_t FinishAdd(Queue& queue, std::uint64_t score) {
    const std::uint32_t count = FinishAddWithoutValues(queue);
    B::ForEachTile(queue, count, options_.dim,
                   body::WriteNewRows{values(), options_.initializer, initial_state(), score,
                                      new_keys_.data(), new_rows_.data()});
    MarkChanged(queue, new_rows_.data(), count);
    return count;
  }

  // Does the same, except that the caller writes the new rows, and marks them as changed.
  std::uint32_t FinishAddWithoutValues(Queue& queue) {
    const std::uint32_t count = added_.Get(queue);
    const std::uint32_t reused = std::min(count, erased_rows_);
    erased_rows_ -= reused;
    rows_used_ += count - reused;
    table_->Added(count);  // at most: some may have revived a dead cell
    return count;
  }

  // Returns the `count` keys that the last FinishAdd gave rows, in no order. Waits. Throws std::bad_alloc.
  std::vector<Key> NewKeys(Queue& queue, std::uint32_t count) {
    std::vector<Key> keys(count);
    B::CopyOut(queue, keys.data(), new_keys_.data(), count);
    return keys;
  }

  // From now on, remembers which rows change and which keys are erased. Throws std::bad_alloc, and then
  // nothing has changed.
  void TrackChanges(Queue& queue, std::uint64_t max_erased) {
    auto changes = std::make_unique<Changes<B>>(queue, addresses_, max_erased);
    CheckMemory(queue, rows_.rows());
    changes->Grow(queue, rows_.rows());
    changes_ = std::move(changes);
  }
  // Returns null if changes are not tracked.
  Changes<B>* changes() { return changes_.get(); }
  // REQUIRES: the rows are distinct. Does nothing if changes are not tracked.
  void MarkChanged(Queue& queue, const RowIndex* rows, std::uint32_t n) {
    if (changes_) changes_->Mark(queue, rows, n);
  }

  // Makes room to remember the rows of n erased keys. Throws std::bad_alloc, and then nothing has changed.
  void ReserveErase(Queue& queue, std::uint32_t n) {
    if (changes_) changes_->ReserveErase(n);
    erased_keys_.Reserve(queue, n);
    const std::uint64_t rows = std::min<std::uint64_t>(erased_rows_ + std::uint64_t{n}, rows_used_);
    if (rows > erased_.size()) GrowAhead(erased_, rows, addresses_);
  }

  // Forgets keys[0 .. n). Returns how many of them had a row; these are added to `removed`, if it is not
  // null. REQUIRES: ReserveErase(n); `removed` has the capacity.
  std::uint32_t Erase(Queue& queue, const Key* keys, std::uint32_t n, std::vector<Key>* removed = nullptr) {
    RowIndex* const erased = erased_.data() + erased_rows_;
    const std::uint32_t count = B::ForEachNumbered(
        queue, n, body::EraseKeys<Atomics>{hash_table(), keys, erased, erased_keys_.data(), values().scored});
    erased_rows_ += count;
    if (changes_) changes_->Erased(queue, erased_keys_.data(), count);
    if (removed != nullptr) {
      removed->resize(removed->size() + count);
      B::CopyOut(queue, removed->data() + (removed->size() - count), erased_keys_.data(), count);
    }
    return count;
  }

  // Prepares to alter the table to `options`, with at most `max_rows` rows here, as RowMemory does. Rows that
  // there are stay, also beyond max_rows. Throws std::bad_alloc.
  void PrepareAlter(Queue& queue, const TableOptions& options, std::uint64_t max_rows) {
    const std::uint64_t addresses =
        std::max(addresses_, std::min({options.max_rows, max_rows, kMaxRowsPerShard}));
    erased_.Extend(queue, addresses);
    if (changes_) changes_->Extend(queue, addresses);
    rows_.PrepareAlter(queue, options, addresses);
    addresses_ = addresses;
  }
  // Ends PrepareAlter, of which it takes the arguments. If the alteration is `kept`, rows that had no score
  // get `score`, and scores become those of the table's new kind.
  void EndAlter(Queue& queue, bool kept, const TableOptions& options, std::uint64_t max_rows,
                std::uint64_t score) {
    const bool had_scores = options_.has_scores();
    const bool converts = had_scores && options.has_scores() &&
                          CountsOccurrences(options_.score()) != CountsOccurrences(options.score());
    const bool had_keys = values().keys != nullptr;
    if (kept) {
      options_ = options;
      max_rows_ = std::min({options.max_rows, max_rows, kMaxRowsPerShard});
    }
    rows_.EndAlter(kept, options_, max_rows_);
    if (!kept) return;
    const body::RowsRef rows = values();
    if (converts) {
      B::ForEach(queue, rows_used_, body::ConvertScores{rows.scored, CountsOccurrences(options.score())});
    }
    const bool new_scores = rows.scored != nullptr && !had_scores;
    if (new_scores) {
      B::ForEach(queue, rows_used_,
                 body::Fill<body::ScoredKey>{rows.scored, {0, body::kNoScore}});  // rows that no key has
    }
    if (new_scores || (rows.keys != nullptr && !had_keys)) {
      ForEachPart([&](const body::SomeCells& cells) {
        B::ForEach(queue, cells.size(), body::WriteKeysOfCells{cells, rows, score});
      });
    }
  }

  // Returns the value of every float of a new row's optimizer state.
  float initial_state() const { return InitialState(options_.optimizer); }

  // Returns how many distinct keys there are among keys[absent[0 .. n)]. Throws std::bad_alloc.
  std::uint32_t CountDistinct(Queue& queue, const Key* keys, const std::uint32_t* absent, std::uint32_t n) {
    typename B::template Scratch<body::Cell> memory;
    const body::HashTableRef scratch = ScratchTable(queue, memory, n);
    return B::ForEachNumbered(queue, n, body::CountKeys<Atomics>{scratch, keys, absent});
  }

  // Returns a hash table without keys for n keys of a batch, in `memory`; each row in it is 0. Throws
  // std::bad_alloc.
  body::HashTableRef ScratchTable(Queue& queue, typename B::template Scratch<body::Cell>& memory,
                                  std::uint32_t n) const {
    // An emptier table would be searched faster, but take up to 8 times as much memory beside a full table.
    constexpr float kLoad = 0.9375F;
    const std::uint64_t cells = sizing::CellsFor(n, kLoad);
    const body::HashTableRef table{memory.Reserve(queue, cells + 1), cells - 1, hash_of_};
    B::ForEach(queue, table.Cells(), body::FreeCells{table.cells});
    return table;
  }

 private:
  static constexpr std::uint64_t kFirstRows = sizing::kFirstRows;
  static_assert(sizeof(body::Cell) == sizing::kCellBytes);
  static_assert(body::HashTableRef::kLeastCells == sizing::kLeastCells);

  // Returns for how many rows there is memory, of all kinds.
  std::uint64_t RowsWithMemory() const {
    return changes_ ? std::min(rows_.rows(), changes_->rows()) : rows_.rows();
  }

  // Returns how many rows will be handed out once `more` keys have come: rows of erased keys are used first.
  std::uint64_t RowsUsedWith(std::uint64_t more) const {
    return rows_used_ + (more - std::min<std::uint64_t>(more, erased_rows_));
  }

  // Makes sure that there is memory for rows [0, rows). Before there is too little, the last hash table is
  // given back. Throws std::bad_alloc.
  void MakeRows(Queue& queue, std::uint64_t rows) {
    try {
      GrowRows(queue, rows);
    } catch (const std::bad_alloc&) {
      if (!table_->GiveBack(queue)) throw;
      CountBytes();
      GrowRows(queue, rows);
    }
  }
  void GrowRows(Queue& queue, std::uint64_t rows) {
    if (rows > listed_rows_) SetListsAside(queue, rows);
    if (rows > rows_.rows()) rows_.GrowAheadTo(queue, rows);
    if (changes_) changes_->Grow(queue, rows_.rows());
  }

  // Throws std::bad_alloc if the table may not take so many bytes more.
  static void CheckMemory(Queue& queue, std::uint64_t bytes) {
    if (bytes > B::MemoryForTables(queue)) throw std::bad_alloc();
  }

  // Sets memory aside for lists of `rows` rows, and of more ahead if there is memory. REQUIRES: `rows` is
  // more than listed_rows_. Throws std::bad_alloc.
  void SetListsAside(Queue& queue, std::uint64_t rows) {
    constexpr std::uint64_t kLeastAhead = 1 << 16;
    std::uint64_t ahead = std::min(std::max(rows / 8, kLeastAhead), max_rows_ - rows);
    if (ExactGrowth::IsAsked()) ahead = 0;
    if (const std::uint64_t beside = B::KeptBesideARow(); beside > 0) {
      const std::uint64_t free = B::MemoryForTables(queue) / beside;
      const std::uint64_t more = rows - listed_rows_;
      if (more > free) throw std::bad_alloc();
      ahead = std::min(ahead, (free - more) / 2);
    }
    listed_rows_ = rows + ahead;
    CountBytes();
  }

  // Counts the memory that the table has beside its rows' memory.
  void CountBytes() { bytes_.Set(table_->bytes() + listed_rows_ * B::KeptBesideARow()); }

  std::uint64_t max_rows_;
  std::uint64_t addresses_;  // rows that there are addresses for: the largest max_rows_ so far
  TableOptions options_;
  body::PlaceHash hash_of_;  // of all tables that the store makes
  std::uint32_t rows_used_ = 0;
  std::uint32_t erased_rows_ = 0;
  std::uint64_t listed_rows_ = 0;  // rows of which exports and checkpoints may make lists (KeptBesideARow)
  std::optional<GrowingTable<B>> table_;
  typename B::TableBytes bytes_;
  RowMemory<B> rows_;
  typename B::template Growing<RowIndex> erased_;     // rows to hand out again
  typename B::template Answer<std::uint32_t> added_;  // how many keys BeginAdd gave a row
  std::unique_ptr<Changes<B>> changes_;
  typename B::template Scratch<std::uint64_t> lost_;
  typename B::template Scratch<Key> new_keys_;
  typename B::template Scratch<RowIndex> new_rows_;
  typename B::template Scratch<Key> erased_keys_;  // of the last Erase
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_ROW_STORE_INL_
