// PreparedBatch: the batch that a shard is in the middle of: this rank's keys, their rows, and how far the
// batch has come on its way (shard.h).
//
//     Begin ─► FindRows ──────────────────────────────────────────────────────────► rows ─► (erased)
//          └─► AskForNew ─► MakeRoom ─► ExactNewRows* ─► BeginInsert ─► FinishInsert ─► rows ─► TakeRows
//
// Sorting rows overwrites them, so whoever sorts takes them, and the batch is spent: every later call that
// needs rows throws std::logic_error, as calls in another order do.
// Thread-safety: the queue's. All arrays are in device memory.
#ifndef SLOTWISE_KERNELS_PREPARED_BATCH_INL_
#define SLOTWISE_KERNELS_PREPARED_BATCH_INL_

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend/concept.h"
#include "kernels/body/key_launches.h"
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

  // Forgets the batch before.
  void Clear() {
    progress_ = Progress::kNone;
    has_inserted_ = false;
  }

  // The same, and gives back what the batch's arrays take.
  void FreeScratch() {
    Clear();
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
    has_inserted_ = false;
    size_is_asked_ = false;
    number_ = ++batches;
    progress_ = Progress::kBegun;
  }

  // REQUIRES: Begin. Finds the keys' rows; keys without one stay so. Does not wait.
  void FindRows() {
    if (kept_.size_on_device == nullptr) {
      B::ForEach(queue_, kept_.size, Find());
    } else {
      B::ForEachUpTo(queue_, kept_.most, kept_.size_on_device, Find());
    }
    progress_ = Progress::kRowsFound;
  }

  // REQUIRES: Begin. Begins to find out which keys are new. Does not wait. Throws std::bad_alloc.
  void AskForNew() {
    if (kept_.size_on_device != nullptr) {
      B::Get(queue_, kept_.size_on_device, size_);
      size_is_asked_ = true;
    }
    if (!MayTakeAllForNew()) AskForAbsent();
    progress_ = Progress::kAskedForNew;
  }

  // REQUIRES: AskForNew. Makes room for the rows that Insert will add, and says how many they are.
  // RESOURCE_EXHAUSTED if the shard cannot have so many rows. Waits. Throws std::bad_alloc; the table is as
  // it was then.
  Result<NewRows> MakeRoom() {
    Require(progress_ == Progress::kAskedForNew, "a batch that was begun to be prepared");
    LearnSize();
    progress_ = Progress::kRoomMade;
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

  // REQUIRES: MakeRoom, or FindRows of a batch whose size is known. The number of distinct keys without a
  // row. Waits. Throws std::bad_alloc.
  std::uint64_t ExactNewRows() {
    Require(progress_ != Progress::kNone, "a prepared batch");
    if (!absent_is_listed_) ListAbsent();
    return absent_size_ == 0 ? 0 : store_.CountDistinct(queue_, kept_.keys, absent_.data(), absent_size_);
  }

  // REQUIRES: MakeRoom. Gives every absent key a row. Does not wait; FinishInsert comes next.
  void BeginInsert() {
    Require(progress_ == Progress::kRoomMade, "a batch with room for its new rows");
    if (absent_size_ > 0) {
      const body::Chosen absent{absent_is_listed_ ? absent_.data() : nullptr};
      store_.BeginAdd(queue_, kept_.keys, absent, absent_size_, rows_.data());
    }
    progress_ = Progress::kInserting;
  }

  // REQUIRES: BeginInsert. Writes first values to the new rows. Waits, if there are any.
  void FinishInsert() {
    Require(progress_ == Progress::kInserting, "a batch whose new keys were begun to be inserted");
    added_ = absent_size_ > 0 ? store_.FinishAdd(queue_) : 0;
    absent_size_ = 0;
    mostly_new_ = 2 * std::uint64_t{added_} > kept_.size;
    has_inserted_ = true;
    progress_ = Progress::kInserted;
  }

  // REQUIRES: Insert. The keys that it gave rows. Waits. Throws std::bad_alloc.
  std::vector<Key> InsertedKeys() {
    Require(has_inserted_, "a batch that was inserted");
    return store_.NewKeys(queue_, added_);
  }

  // The host learns how many keys were kept; waits if it does not know yet. Lookups that insert no keys do
  // without.
  void LearnSize() {
    const std::uint32_t* const on_device = std::exchange(kept_.size_on_device, nullptr);
    if (on_device == nullptr) return;
    kept_.size = size_is_asked_ ? size_.Get(queue_) : B::Get(queue_, on_device);
  }

  // REQUIRES: a prepared batch, spent or not.
  const KeptKeys& kept() const {
    Require(progress_ != Progress::kNone, "a prepared batch");
    return kept_;
  }
  // Returns the batch's number among all batches of this process, from 1.
  std::uint64_t number() const { return number_; }

  // The row of each kept key. REQUIRES: FindRows or FinishInsert, and rows that nobody took.
  const RowIndex* rows() {
    Require(progress_ == Progress::kRowsFound || progress_ == Progress::kInserted,
            "a batch with rows that are not spent");
    return rows_.data();
  }
  // The same, to be overwritten: the batch is spent. REQUIRES: FinishInsert, and rows that nobody took.
  RowIndex* TakeRows() {
    Require(progress_ == Progress::kInserted, "an inserted batch with rows that are not spent");
    progress_ = Progress::kSpent;
    return rows_.data();
  }
  // The same for whoever only reads which rows the batch may change; they may be about to be erased too.
  const RowIndex* rows_to_change() {
    if (progress_ == Progress::kMayBeErased) return rows_.data();
    return rows();
  }
  // REQUIRES: a prepared batch. There is room to remember the rows of its keys once they are erased.
  void AllowErase() {
    Require(progress_ != Progress::kNone, "a prepared batch");
    if (progress_ == Progress::kRoomMade || progress_ == Progress::kSpent) FindRows();
    progress_ = Progress::kMayBeErased;
  }
  void RequireRoomToErase() const {
    Require(progress_ == Progress::kMayBeErased, "a batch with room to remember the rows of erased keys");
  }
  // REQUIRES: AllowErase. The rows are no longer the keys'.
  void Erase() {
    RequireRoomToErase();
    progress_ = Progress::kSpent;
  }

 private:
  enum class Progress : std::uint8_t {
    kNone,
    kBegun,
    kRowsFound,
    kAskedForNew,
    kRoomMade,
    kInserting,
    kInserted,
    kMayBeErased,
    kSpent
  };

  static void Require(bool condition, const char* what) {
    if (!condition) throw std::logic_error(std::string("a shard was asked for what takes ") + what);
  }

  body::FindRows Find() { return {store_.hash_table(), kept_.keys, rows_.data()}; }

  // Whether the search for absent keys can be left out. Where most keys were new the last time, it is mostly
  // in vain. If the host does not know yet how many keys there are, they may turn out too many.
  bool MayTakeAllForNew() const {
    if (!mostly_new_ || kept_.size_on_device != nullptr) return mostly_new_;
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
  Progress progress_ = Progress::kNone;
  std::uint64_t number_ = 0;
  typename B::template Scratch<RowIndex> rows_;               // [kept keys]
  typename B::template Scratch<std::uint32_t> absent_;        // the places of kept keys without a row
  typename B::template Answer<std::uint32_t> size_;           // of the kept keys, where a device counts them
  typename B::template Answer<std::uint32_t> absent_answer_;  // the number of absent keys
  std::uint32_t added_ = 0;                                   // keys that Insert gave rows
  bool has_inserted_ = false;                                 // this batch
  std::uint32_t absent_size_ = 0;  // of absent keys; of all keys, if they were not searched for
  bool size_is_asked_ = false;
  bool absent_is_asked_ = false;
  bool absent_is_listed_ = false;
  bool mostly_new_ = true;  // of the last batch that was inserted
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_PREPARED_BATCH_INL_
