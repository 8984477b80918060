// PreparedBatch: the batch that a shard is in the middle of: this rank's keys, their rows, and their pooled
// bags. Its calls come in the order that the handles of shard_batch.h allow:
//
//     Begin ─► FindRows
//          └─► AskForNew ─► MakeRoom ─► ExactNewRows* ─► BeginInsert ─► FinishInsert
//
// Thread-safety: the queue's. All arrays are in device memory.
#ifndef SLOTWISE_KERNELS_PREPARED_BATCH_INL_
#define SLOTWISE_KERNELS_PREPARED_BATCH_INL_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend/concept.h"
#include "kernels/body/key_launches.h"
#include "kernels/body/pool.h"
#include "kernels/body/rows.h"
#include "kernels/dispatch.h"
#include "kernels/row_store.inl"
#include "kernels/shard.h"
#include "kernels/sharder.inl"

namespace slotwise {

template <Backend B>
class PreparedBatch {
 public:
  using Queue = typename B::Queue;

  // Both outlive the batch.
  PreparedBatch(Queue& queue, RowStore<B>& store) : queue_(queue), store_(store) {}

  // Gives back what the batch's arrays take.
  void FreeScratch() {
    rows_ = {};
    absent_ = {};
  }

  // The arrays of `kept` stay as they are until the next Begin. Throws std::bad_alloc.
  void Begin(const KeptKeys& kept) {
    static std::atomic<std::uint64_t> batches = 0;
    kept_ = kept;
    rows_.Reserve(queue_, kept.most);
    absent_size_ = 0;
    absent_is_asked_ = false;
    absent_is_listed_ = false;
    size_is_asked_ = false;
    number_ = ++batches;
  }

  // REQUIRES: Begin. Finds the keys' rows; keys without one stay so. Does not wait.
  void FindRows() {
    if (kept_.size_on_device == nullptr) {
      B::ForEach(queue_, kept_.size, Find());
    } else {
      B::ForEachUpTo(queue_, kept_.most, kept_.size_on_device, Find());
    }
  }

  // REQUIRES: Begin. Begins to find out which keys are new. Does not wait. Throws std::bad_alloc.
  void AskForNew() {
    if (kept_.size_on_device != nullptr) {
      B::Get(queue_, kept_.size_on_device, size_);
      size_is_asked_ = true;
    }
    if (!MayTakeAllForNew()) AskForAbsent();
  }

  // REQUIRES: AskForNew. Makes room for the rows that BeginInsert will add, and says how many they are.
  // RESOURCE_EXHAUSTED if the shard cannot have so many rows. Waits. Throws std::bad_alloc; the table is as
  // it was then.
  Result<NewRows> MakeRoom() {
    LearnSize();
    if (!absent_is_asked_ && MayTakeAllForNew()) {
      store_.ReserveAdd(queue_, kept_.size);
      absent_size_ = kept_.size;
      return NewRows{kept_.size, false};
    }
    ListAbsent();
    if (absent_size_ == 0) return NewRows{0, true};
    store_.ReserveAdd(queue_, absent_size_);
    if (store_.HasRoomFor(absent_size_)) return NewRows{absent_size_, absent_size_ == 1};
    // Counting repeated keys once may well show that there is room; if not, grow by what is really new.
    const std::uint64_t exact = ExactNewRows();
    if (store_.rows() + exact > kMaxRowsPerShard) {
      return ResourceExhausted("this rank holds " + std::to_string(store_.rows()) + " of at most " +
                               std::to_string(kMaxRowsPerShard) + " rows, and the batch brings it " +
                               std::to_string(exact) + " new keys");
    }
    // Past max_rows, the table's or this rank's, no room is made: the ranks, who tell each other their rows,
    // will refuse the batch.
    if (store_.rows() + exact <= store_.max_rows()) store_.MakeRoomFor(queue_, exact);
    return NewRows{exact, true};
  }

  // REQUIRES: MakeRoom. The number of distinct keys without a row. Waits. Throws std::bad_alloc.
  std::uint64_t ExactNewRows() {
    if (!absent_is_listed_) ListAbsent();
    return absent_size_ == 0 ? 0 : store_.CountDistinct(queue_, kept_.keys, absent_.data(), absent_size_);
  }

  // REQUIRES: MakeRoom. Gives every absent key a row. Does not wait; FinishInsert comes next.
  void BeginInsert() {
    if (absent_size_ > 0) {
      const body::Chosen absent{absent_is_listed_ ? absent_.data() : nullptr};
      store_.BeginAdd(queue_, kept_.keys, absent, absent_size_, rows_.data());
    }
  }

  // REQUIRES: BeginInsert. Writes initial values to the new rows. Waits, if there are any.
  void FinishInsert() {
    added_ = absent_size_ > 0 ? store_.FinishAdd(queue_) : 0;
    absent_size_ = 0;
    mostly_new_ = 2 * std::uint64_t{added_} > kept_.size;
  }

  // REQUIRES: FinishInsert. The keys that got rows. Waits. Throws std::bad_alloc.
  std::vector<Key> InsertedKeys() { return store_.NewKeys(queue_, added_); }

  // REQUIRES: FindRows or FinishInsert. Writes the sum of the rows of each of the bags [bags.first,
  // bags.last) to `out`, at the bag's place in `places` (body::PoolBags), or in the order of the bags if that
  // is null. Does not wait.
  void Pool(Numbers out, const BagRange& bags, const std::uint32_t* places) {
    const std::uint32_t count = std::min(bags.last, kept_.bags) - bags.first;
    const std::uint32_t* const offsets = kept_.offsets + bags.first;
    const body::RowsRef rows = store_.values();
    WithElements(out, [&]<class T>(const T*) {
      B::ForEachRun(
          queue_, count, rows.dim,
          body::PoolBags<T>{rows, rows_.data(), offsets, kept_.weights, places, static_cast<T*>(out.data)});
    });
  }

  // The host learns how many keys were kept; waits if it does not know yet. Lookups that insert no keys do
  // without.
  void LearnSize() {
    const std::uint32_t* const on_device = std::exchange(kept_.size_on_device, nullptr);
    if (on_device == nullptr) return;
    kept_.size = size_is_asked_ ? size_.Get(queue_) : B::Get(queue_, on_device);
  }

  const KeptKeys& kept() const { return kept_; }
  // Returns the batch's number among all batches of this process, from 1.
  std::uint64_t number() const { return number_; }
  // Returns the row of each kept key, to be overwritten by the call that spends the batch. REQUIRES: FindRows
  // or FinishInsert.
  RowIndex* rows() { return rows_.data(); }

 private:
  body::FindRows Find() { return {store_.hash_table(), kept_.keys, rows_.data()}; }

  // Whether the search for absent keys can be left out. Where most keys were new the last time, it is mostly
  // in vain. If the host does not know yet how many keys there are, they may turn out too many.
  bool MayTakeAllForNew() const {
    if (!mostly_new_) return false;
    if (kept_.size_on_device != nullptr) return true;  // MakeRoom asks again, when the size is known
    return kept_.size > 0 && store_.HasRoomFor(kept_.size);
  }

  // Finds the keys' rows, and begins to list the keys without one.
  void AskForAbsent() {
    const bool known = kept_.size_on_device == nullptr;
    const std::uint32_t most = known ? kept_.size : kept_.most;
    std::uint32_t* const absent = absent_.Reserve(queue_, most);
    B::ForEachNumbered(queue_, most, kept_.size_on_device, body::FindRowsAndAbsent{Find(), absent},
                       absent_answer_);
    absent_is_asked_ = true;
  }

  // The keys' rows are found, and the keys without one are listed.
  void ListAbsent() {
    LearnSize();
    if (!absent_is_asked_) AskForAbsent();
    absent_size_ = absent_answer_.Get(queue_);
    absent_is_listed_ = true;
  }

  Queue& queue_;
  RowStore<B>& store_;
  KeptKeys kept_;
  std::uint64_t number_ = 0;
  typename B::template Scratch<RowIndex> rows_;               // [kept keys]
  typename B::template Scratch<std::uint32_t> absent_;        // the places of kept keys without a row
  typename B::template Answer<std::uint32_t> size_;           // of the kept keys, where a device counts them
  typename B::template Answer<std::uint32_t> absent_answer_;  // the number of absent keys
  std::uint32_t added_ = 0;                                   // keys that got rows
  std::uint32_t absent_size_ = 0;  // of absent keys; of all keys, if they were not searched for
  bool size_is_asked_ = false;
  bool absent_is_asked_ = false;
  bool absent_is_listed_ = false;
  bool mostly_new_ = true;  // of the last batch that was inserted
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_PREPARED_BATCH_INL_
