// A Snapshot has rows as they were between two batches. It is read in pieces while later batches change them.
//
// A row that is about to change before it was read is copied first; reading it frees the copy. Only the
// device knows for how many more copies there is room, so that reading does not wait.
// Thread-safety: same as the queue.
#ifndef SLOTWISE_KERNELS_SNAPSHOT_INL_
#define SLOTWISE_KERNELS_SNAPSHOT_INL_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/backend/concept.h"
#include "kernels/body/snapshot.h"
#include "kernels/body/update.h"
#include "kernels/prepared_batch.inl"
#include "kernels/row_store.inl"
#include "kernels/shard.h"

namespace slotwise {

// Returns whether a snapshot's memory is kept from tables beforehand, so that a full table can be saved. A
// row takes its state here, and in host memory its key and number twice, for the list and for its sort.
template <Backend B>
bool SnapshotsAreSetAside() {
  constexpr std::size_t kBytesARow = sizeof(std::uint32_t) + 12 + 16;
  return B::KeptBesideARow() >= kBytesARow;
}

// The copy-on-write buffer: memory for rows that change before they are read. A shard keeps it from one
// snapshot to the next: a CPU takes longer to allocate it than to write it, and tables would have grown into
// it. The shard gives memory back when its share of all tables' budget has become smaller, so that all shards
// together keep at most an eighth more than the budget.
template <Backend B>
class CopyMemory {
 public:
  // Makes room for n floats, and for none ahead, because a budget gives n. Throws std::bad_alloc.
  void Reserve(typename B::Queue& queue, std::size_t n) {
    if (n <= floats_ && floats_ <= n + n / 8) return;
    memory_ = {};
    floats_ = 0;
    if (!SnapshotsAreSetAside<B>() && n * sizeof(float) > B::MemoryForTables(queue)) throw std::bad_alloc();
    if (n > 0) memory_.Reserve(queue, n);
    floats_ = n;
  }
  std::size_t floats() const { return floats_; }
  float* data() { return memory_.data(); }

 private:
  typename B::template Scratch<float> memory_;
  std::size_t floats_ = 0;
};

template <Backend B>
class Snapshot {
 public:
  using Queue = typename B::Queue;

  // Lists the rows of `store` in `info`, and makes room in `saved`, which outlives the snapshot. Waits.
  // Throws std::bad_alloc.
  Snapshot(Queue& queue, RowStore<B>& store, const SnapshotOptions& options, CopyMemory<B>& saved,
           SnapshotInfo& info)
      : used_(store.rows_used()), remembers_(options.remember), saved_(saved) {
    CheckMemory(queue, std::size_t{used_} * sizeof(std::uint32_t));
    B::ForEach(queue, used_, body::Fill<std::uint32_t>{states_.Reserve(queue, used_), body::kDone});
    List(queue, store, options.changed_only, info);
    const std::size_t bytes_of_copy = store.values().floats * sizeof(float) + sizeof(std::uint32_t);
    copies_ = static_cast<std::uint32_t>(std::min({options.max_copy_on_write_bytes / bytes_of_copy,
                                                   info.keys.size(), std::size_t{body::kUnsaved} - 1}));
    saved_.Reserve(queue, std::size_t{copies_} * store.values().floats);
    B::ForEach(queue, copies_, body::CountUp{free_copies_.Reserve(queue, copies_)});
    B::ForEach(queue, 1U, body::Fill<std::uint32_t>{free_.Reserve(queue, 1), copies_});
    count_.Reserve(queue, 1);
  }

  bool remembers() const { return remembers_; }
  // Returns for how many more copies there is room. Waits.
  std::uint32_t Room(Queue& queue) { return B::Get(queue, free_.data()); }

  // Saves those of `rows` (of a batch, with repetitions and kNoRow) that will be read and were not saved yet.
  // Returns how many of them lack room: if any do, no row was saved. Waits. Throws std::bad_alloc.
  std::uint32_t Save(Queue& queue, const body::RowsRef& values, const RowIndex* rows, std::uint32_t n) {
    if (n == 0) return 0;
    if (n >= body::kUnsaved - 1) throw std::length_error("a batch of 2^31 keys while a snapshot is open");
    std::uint32_t* const claimers = places_.Reserve(queue, n);
    B::ForEach(queue, n, body::ClaimRows<typename B::Atomics>{states(), rows});
    B::SelectIndices(queue, n, claimers, count_.data(), body::HasClaimed{states(), rows});
    const body::CountsOfCopies counts = B::Ask(queue, body::ReadCounts{count_.data(), free_.data()});
    if (counts.wanted > counts.free) return counts.wanted - counts.free;
    const std::uint32_t* const copies = free_copies_.data() + (counts.free - counts.wanted);
    B::ForEachTile(queue, counts.wanted, values.dim,
                   body::SaveRows{states(), values, rows, claimers, copies, saved_.data()});
    B::ForEach(queue, 1U, body::AddTo{free_.data(), nullptr, counts.wanted});
    return 0;
  }

  // See ShardSnapshot::Read. Throws std::bad_alloc.
  void Read(Queue& queue, typename B::Stream& stream, const body::RowsRef& values,
            std::span<const RowIndex> rows, float* host_records) {
    if (rows.empty()) return;
    if (std::ranges::any_of(rows, [this](RowIndex row) { return Value(row) >= used_; })) {
      throw std::logic_error("a row that the snapshot does not have");
    }
    const auto n = static_cast<std::uint32_t>(rows.size());
    if constexpr (B::kSharesHostMemory) {
      Gather(queue, values, rows.data(), n, host_records);
    } else {
      // Reserve may reallocate the arrays, in the order of the queue.
      const std::size_t floats = std::size_t{n} * values.floats;
      B::OrderAfter(queue, stream.queue());
      RowIndex* const wanted = wanted_.Reserve(queue, n);
      float* const records = records_.Reserve(queue, floats);
      B::OrderAfter(stream.queue(), queue);
      stream.Copy(wanted, rows.data(), rows.size_bytes());
      B::OrderAfter(queue, stream.queue());
      Gather(queue, values, wanted, n, records);
      B::OrderAfter(stream.queue(), queue);
      stream.Copy(host_records, records, floats * sizeof(float));
    }
  }

 private:
  body::RowStates states() { return {states_.data(), used_}; }

  static void CheckMemory(Queue& queue, std::size_t bytes) {
    if (!SnapshotsAreSetAside<B>() && bytes > B::MemoryForTables(queue)) throw std::bad_alloc();
  }

  void List(Queue& queue, RowStore<B>& store, bool changed_only, SnapshotInfo& info) {
    if (used_ == 0) return;  // a cell without a row asks for the first row's bit, and there is none
    typename B::template Scratch<std::uint32_t> words;
    typename B::template Scratch<Key> keys;
    typename B::template Scratch<RowIndex> rows;
    const std::uint32_t* const changed =
        changed_only ? store.changes()->Packed(queue, used_, words) : nullptr;
    if (!changed_only) {
      info.keys.reserve(store.rows());
      info.rows.reserve(store.rows());
    }
    store.ForEachRunOfCells([&](const body::SomeCells& cells, std::uint32_t size) {
      Key* const listed_keys = keys.Reserve(queue, size);
      RowIndex* const listed_rows = rows.Reserve(queue, size);
      const auto list = [&]<bool kAll>(std::bool_constant<kAll>) {
        return B::ForEachNumbered(queue, size,
                                  body::ListRows<kAll>{cells, changed, states(), listed_keys, listed_rows});
      };
      const std::uint32_t n = changed_only ? list(std::false_type()) : list(std::true_type());
      const std::size_t before = info.keys.size();
      info.keys.resize(before + n, Key{0});
      info.rows.resize(before + n, kNoRow);
      B::CopyOut(queue, info.keys.data() + before, listed_keys, n);
      B::CopyOut(queue, info.rows.data() + before, listed_rows, n);
    });
  }

  // Copies rows as they were to `records`, and frees their copies. Does not wait.
  void Gather(Queue& queue, const body::RowsRef& values, const RowIndex* rows, std::uint32_t n,
              float* records) {
    std::uint32_t* const copied = places_.Reserve(queue, n);
    std::uint32_t* const taken = taken_.Reserve(queue, n);
    B::ForEach(queue, n, body::TakeStates{states(), rows, taken});
    B::ForEachTile(queue, n, values.dim, body::ReadRows{values, rows, taken, saved_.data(), records});
    B::SelectIndices(queue, n, copied, count_.data(), body::WasCopied{taken});
    B::ForEachUpTo(queue, n, count_.data(),
                   body::FreeCopies{taken, copied, free_copies_.data(), free_.data()});
    B::ForEach(queue, 1U, body::AddTo{free_.data(), count_.data(), 0});
  }

  using Words = typename B::template Scratch<std::uint32_t>;

  const std::uint32_t used_;  // the rows when the snapshot began, those of erased keys included
  const bool remembers_;
  std::uint32_t copies_ = 0;
  Words states_;          // [used] body/snapshot.h
  CopyMemory<B>& saved_;  // [copies][floats]
  Words free_copies_;     // [copies], of which the first *free are free
  Words free_;            // [1]
  Words count_;           // [1]
  Words places_;
  Words taken_;
  typename B::template Scratch<RowIndex> wanted_;  // where the host's memory is not the device's
  typename B::template Scratch<float> records_;    // likewise
};

// The snapshots of a shard, of which at most one is open.
template <Backend B>
class ShardSnapshotOn final : public ShardSnapshot {
 public:
  using Queue = typename B::Queue;

  // REQUIRES: both outlive the snapshot.
  ShardSnapshotOn(Queue& queue, RowStore<B>& store) : queue_(queue), store_(store) {}

  bool is_open() const { return snapshot_ != nullptr; }

  // See Shard::BeginSnapshot.
  Result<BegunSnapshot> Begin(const SnapshotOptions& options) {
    if (snapshot_) throw std::logic_error("a snapshot is open already");
    Changes<B>* const changes = store_.changes();
    if (options.remember && changes == nullptr) throw std::logic_error("changes are not tracked");
    if (options.changed_only) {
      if (changes == nullptr) return FailedPrecondition("changes are not tracked: take a base");
      if (Status known = changes->AreKnown(); !known.ok()) return known;
    }
    try {
      SnapshotInfo info;
      if (options.changed_only) info.erased = changes->ErasedKeys();
      snapshot_ = std::make_unique<Snapshot<B>>(queue_, store_, options, copies_, info);
      if (options.remember) changes->Take(queue_);
      saved_batch_ = 0;
      return BegunSnapshot{this, std::move(info)};
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory for a snapshot of " + std::to_string(store_.rows()) +
                               " rows with " + std::to_string(options.max_copy_on_write_bytes) +
                               " bytes for rows that change meanwhile");
    }
  }

  // See FoundBatch::CopyBeforeWrite.
  std::uint64_t Save(PreparedBatch<B>& batch) {
    if (!snapshot_ || saved_batch_ == batch.number()) return 0;
    batch.LearnSize();
    const std::uint32_t missing = snapshot_->Save(queue_, store_.values(), batch.rows(), batch.kept().size);
    if (missing == 0) saved_batch_ = batch.number();
    return missing;
  }

  void Read(Stream& stream, std::span<const RowIndex> rows, float* host_records) override {
    Open().Read(queue_, static_cast<typename B::Stream&>(stream), store_.values(), rows, host_records);
  }
  std::uint64_t Room() override { return Open().Room(queue_); }
  void End(bool kept) override {
    if (Open().remembers()) store_.changes()->EndTake(queue_, kept);
    snapshot_.reset();
  }

 private:
  Snapshot<B>& Open() {
    if (!snapshot_) throw std::logic_error("no snapshot is open");
    return *snapshot_;
  }

  Queue& queue_;
  RowStore<B>& store_;
  CopyMemory<B> copies_;
  std::unique_ptr<Snapshot<B>> snapshot_;  // null if none is open
  std::uint64_t saved_batch_ = 0;          // the batch whose rows the open snapshot has saved
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_SNAPSHOT_INL_
