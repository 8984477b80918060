// The Sharder selects the keys of a batch that its rank owns. The PreparedBatch, of which a shard has one,
// finds or makes the rows of the keys, and pools the rows.
//
// Thread-safety: same as the queue. All arrays are in device memory.
#ifndef SLOTWISE_KERNELS_PREPARED_BATCH_INL_
#define SLOTWISE_KERNELS_PREPARED_BATCH_INL_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/admission.inl"
#include "kernels/backend/concept.h"
#include "kernels/body/hash_table.h"
#include "kernels/body/keep_mine.h"
#include "kernels/body/owner.h"
#include "kernels/body/rows.h"
#include "kernels/row_launches.inl"
#include "kernels/row_store.inl"
#include "kernels/shard.h"

namespace slotwise {

// The keys of a batch that this rank owns.
struct KeptKeys {
  BatchView batch;                                // of all ranks
  const std::uint32_t* offsets = nullptr;         // [bags + 1] into `keys`
  const Key* keys = nullptr;                      // [size]
  const float* weights = nullptr;                 // [size], or null: all 1
  std::uint32_t bags = 0;                         // of all ranks: a bag without a key here is empty
  std::uint32_t most = 0;                         // an upper bound of their number
  std::uint32_t size = 0;                         // their number, if size_on_device is null
  const std::uint32_t* size_on_device = nullptr;  // their number, until the host has asked for it
};

// The Sharder selects this rank's keys, with their weights and their bags' offsets, from a batch that every
// rank sees. It owns these arrays, which last until the next SelectLocal. If there is one rank, the arrays
// are the batch's own.
template <Backend B>
class Sharder {
 public:
  using Queue = typename B::Queue;
  using Words = typename B::template Scratch<std::uint32_t>;

  // Throws std::bad_alloc.
  Sharder(Queue& queue, const ShardPlace& place)
      : ranks_(static_cast<std::uint32_t>(place.ranks)),
        rank_(static_cast<std::uint16_t>(Value(place.rank))) {
    B::CopyIn(queue, bucket_map_.Reserve(queue, kBuckets), place.bucket_map.data(), kBuckets);
    size_.Reserve(queue, 1);
    weights_size_.Reserve(queue, 1);
  }

  std::uint32_t ranks() const { return ranks_; }
  std::uint32_t rank() const { return rank_; }
  body::Owner owner() { return body::Owner{bucket_map_.data()}; }

  // Returns this rank's keys of `batch`. Overwrites `spare`, which is free again when the queue has done the
  // work. Does not wait. Throws std::bad_alloc.
  KeptKeys SelectLocal(Queue& queue, const BatchView& batch, Words& spare) {
    KeptKeys kept{.batch = batch, .bags = batch.bags()};
    kept.most = static_cast<std::uint32_t>(batch.keys.size());
    if (ranks_ == 1) {
      kept.keys = batch.keys.data();
      kept.weights = batch.weights.empty() ? nullptr : batch.weights.data();
      kept.offsets = batch.offsets.data();
      kept.size = kept.most;
      return kept;
    }
    const body::IsMine<body::Owner> is_mine{owner(), rank_};
    Key* const keys = keys_.Reserve(queue, kept.most);
    std::uint32_t* const offsets = offsets_.Reserve(queue, kept.bags + std::size_t{1});
    B::SelectKeys(queue, batch.keys.data(), kept.most, keys, size_.data(), is_mine);
    B::ForEach(queue, kept.bags,
               body::CountMine<body::Owner>{is_mine, batch.keys.data(), batch.offsets.data(), offsets});
    B::ExclusiveScan(queue, offsets, kept.bags, offsets);
    kept.keys = keys;
    kept.offsets = offsets;
    kept.size_on_device = size_.data();
    if (!batch.weights.empty()) kept.weights = KeepWeights(queue, batch, is_mine, spare);
    return kept;
  }

  // Frees the arrays of batches. REQUIRES: no batch needs them any more.
  void FreeScratch() {
    keys_ = {};
    offsets_ = {};
    weights_ = {};
  }

 private:
  const float* KeepWeights(Queue& queue, const BatchView& batch, const body::IsMine<body::Owner>& is_mine,
                           Words& spare) {
    const auto most = static_cast<std::uint32_t>(batch.keys.size());
    std::uint32_t* const places = spare.Reserve(queue, most);
    float* const weights = weights_.Reserve(queue, most);
    B::SelectIndices(queue, most, places, weights_size_.data(),
                     body::KeyIsMine<body::Owner>{is_mine, batch.keys.data()});
    B::ForEachUpTo(queue, most, weights_size_.data(),
                   body::CopyWeights{batch.weights.data(), places, weights});
    return weights;
  }

  const std::uint32_t ranks_;
  const std::uint16_t rank_;
  typename B::template Scratch<std::uint16_t> bucket_map_;  // [kBuckets]
  typename B::template Scratch<Key> keys_;
  Words offsets_;
  typename B::template Scratch<float> weights_;
  Words size_;          // [1] how many keys were kept
  Words weights_size_;  // [1] how many weights were kept
};

// The PreparedBatch is the batch that a shard works on: this rank's keys, their rows, and their pooled bags.
// Its calls come in the order that the handles of shard_batch.h allow:
//
//     Begin ─► FindRows
//          └─► AskForNew ─► MakeRoom ─► ExactNewRows* ─► BeginInsert ─► FinishInsert
template <Backend B>
class PreparedBatch {
 public:
  using Queue = typename B::Queue;

  // REQUIRES: both outlive the batch.
  PreparedBatch(Queue& queue, RowStore<B>& store) : queue_(queue), store_(store) {}

  // Frees the batch's arrays.
  void FreeScratch() {
    rows_ = {};
    absent_ = {};
  }

  // REQUIRES: the arrays of `kept` stay as they are until the next Begin. With an `admission`, only the
  // absent keys that it admits get rows. Throws std::bad_alloc.
  void Begin(const KeptKeys& kept, AdmissionOn<B>* admission = nullptr) {
    static std::atomic<std::uint64_t> batches = 0;
    kept_ = kept;
    admission_ = admission;
    refused_ = 0;
    rows_.Reserve(queue_, kept.most);
    store_.GoOn(queue_);
    BringKeys();
    absent_size_ = 0;
    absent_is_asked_ = false;
    absent_is_listed_ = false;
    size_is_asked_ = false;
    number_ = ++batches;
  }

  // REQUIRES: Begin. Finds the keys' rows; keys without a row get none. Does not wait.
  void FindRows() {
    if (kept_.size_on_device == nullptr) {
      B::ForEach(queue_, kept_.size, Find());
    } else {
      B::ForEachUpTo(queue_, kept_.most, kept_.size_on_device, Find());
    }
  }

  // Lets the next batch search for its keys before it takes them for new: then it needs no more memory than
  // it has needed before.
  void SearchForNextKeys() { mostly_new_ = false; }

  // REQUIRES: Begin. Begins to find out which keys are new. Does not wait. Throws std::bad_alloc.
  void AskForNew() {
    if (kept_.size_on_device != nullptr) {
      B::Get(queue_, kept_.size_on_device, size_);
      size_is_asked_ = true;
    }
    if (!MayTakeAllForNew()) AskForAbsent();
  }

  // REQUIRES: AskForNew. Makes room for the rows that BeginInsert will add, and returns their number.
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
    // There may be room if repeated keys are counted once; if not, the table grows by the new keys alone.
    const std::uint64_t exact = ExactNewRows();
    if (store_.rows() + exact > kMaxRowsPerShard) {
      return ResourceExhausted("this rank holds " + std::to_string(store_.rows()) + " of at most " +
                               std::to_string(kMaxRowsPerShard) + " rows, and the batch brings it " +
                               std::to_string(exact) + " new keys");
    }
    // Past max_rows, the table's or this rank's, no room is made: the ranks, which tell each other their
    // rows, will refuse the batch.
    if (store_.rows() + exact <= store_.max_rows()) {
      store_.MakeRoomFor(queue_, exact);
      BringKeys();
    }
    return NewRows{exact, true};
  }

  // REQUIRES: MakeRoom. Returns the number of distinct keys without a row. Waits. Throws std::bad_alloc.
  std::uint64_t ExactNewRows() {
    if (!absent_is_listed_) ListAbsent();
    return absent_size_ == 0 ? 0 : store_.CountDistinct(queue_, kept_.keys, new_places_, absent_size_);
  }

  // REQUIRES: MakeRoom. Gives every absent key a row, or every one that is admitted. Does not wait;
  // FinishInsert comes next.
  void BeginInsert() {
    if (absent_size_ > 0) {
      const body::Chosen absent{absent_is_listed_ ? new_places_ : nullptr};
      store_.BeginAdd(queue_, kept_.keys, absent, absent_size_, rows_.data());
    }
  }

  // REQUIRES: BeginInsert. Writes initial values and the score to the new rows. Waits, if there are any.
  void FinishInsert(std::uint64_t score) {
    added_ = absent_size_ > 0 ? store_.FinishAdd(queue_, score) : 0;
    absent_size_ = 0;
    mostly_new_ = 2 * std::uint64_t{added_} > kept_.size;
  }

  // REQUIRES: FinishInsert. Returns the keys that got rows. Waits. Throws std::bad_alloc.
  std::vector<Key> InsertedKeys() { return store_.NewKeys(queue_, added_); }

  // REQUIRES: FindRows or FinishInsert. Writes the sum of the rows of each of the bags [bags.first,
  // bags.last) to `out`, at the bag's place in `places` (body::PoolBags), or in the order of the bags if that
  // is null. Does not wait.
  void Pool(Numbers out, const BagRange& bags, const std::uint32_t* places) {
    PoolRows(ToPool(out, bags, places));
  }
  // Does the same, except that a key without a row counts as initial values of a row.
  void PoolOrInitial(Numbers out, const BagRange& bags, const std::uint32_t* places,
                     const InitializerOptions& initializer) {
    BagsToPool pool = ToPool(out, bags, places);
    pool.keys = kept_.keys;
    pool.initializer = initializer;
    PoolRows(pool);
  }

  // Tells the host how many keys were kept; waits if the host does not know yet. Lookups that insert no keys
  // do not need the number.
  void LearnSize() {
    const std::uint32_t* const on_device = std::exchange(kept_.size_on_device, nullptr);
    if (on_device == nullptr) return;
    kept_.size = size_is_asked_ ? size_.Get(queue_) : B::Get(queue_, on_device);
  }

  const KeptKeys& kept() const { return kept_; }
  // Returns how many kept keys have no row after an insertion, because they are not admitted. REQUIRES:
  // MakeRoom.
  std::uint32_t refused() const { return refused_; }
  // Returns the batch's number among all batches of this process, from 1.
  std::uint64_t number() const { return number_; }
  // Returns the rows of the kept keys, which the call that spends the batch overwrites. REQUIRES: FindRows or
  // FinishInsert.
  RowIndex* rows() { return rows_.data(); }

 private:
  BagsToPool ToPool(Numbers out, const BagRange& bags, const std::uint32_t* places) {
    return {.bags = std::min(bags.last, kept_.bags) - bags.first,
            .row_of = rows_.data(),
            .offsets = kept_.offsets + bags.first,
            .weights = kept_.weights,
            .places = places,
            .out = out};
  }
  void PoolRows(const BagsToPool& pool) {
    WithRows(store_.values(), [&]<class Element>(const body::RowsOf<Element>& rows) {
      RowLaunches<B, Element>::Pool(queue_, rows, pool);
    });
  }

  // Brings the keys to where launches look for them.
  void BringKeys() {
    const bool known = kept_.size_on_device == nullptr;
    store_.Bring(queue_, kept_.keys, known ? kept_.size : kept_.most, kept_.size_on_device);
  }

  body::FindRows Find() { return {store_.hash_table(), kept_.keys, rows_.data()}; }

  // Returns whether the search for absent keys can be left out, because most keys of the last batch were new.
  // If the host does not know yet how many keys there are, they may turn out too many.
  bool MayTakeAllForNew() const {
    if (!mostly_new_ || admission_ != nullptr) return false;
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

  // Waits until the keys' rows are found, and the keys without a row, or those that are admitted, are listed.
  void ListAbsent() {
    LearnSize();
    if (!absent_is_asked_) AskForAbsent();
    absent_size_ = absent_answer_.Get(queue_);
    absent_is_listed_ = true;
    new_places_ = absent_.data();
    if (admission_ == nullptr) return;
    const std::span<std::uint32_t> admitted =
        admission_->Admit(queue_, store_, kept_.keys, {absent_.data(), absent_size_});
    refused_ = absent_size_ - static_cast<std::uint32_t>(admitted.size());
    absent_size_ = static_cast<std::uint32_t>(admitted.size());
    new_places_ = admitted.data();
  }

  Queue& queue_;
  RowStore<B>& store_;
  KeptKeys kept_;
  std::uint64_t number_ = 0;
  typename B::template Scratch<RowIndex> rows_;         // [kept keys]
  typename B::template Scratch<std::uint32_t> absent_;  // the places of kept keys without a row
  typename B::template Answer<std::uint32_t> size_;     // the number of kept keys, where a device counts them
  typename B::template Answer<std::uint32_t> absent_answer_;  // the number of absent keys
  std::uint32_t added_ = 0;                                   // keys that got rows
  std::uint32_t absent_size_ = 0;        // the number of new keys; of all keys, if they were not searched for
  std::uint32_t* new_places_ = nullptr;  // [absent_size_] places of kept keys that are to get rows
  AdmissionOn<B>* admission_ = nullptr;
  std::uint32_t refused_ = 0;
  bool size_is_asked_ = false;
  bool absent_is_asked_ = false;
  bool absent_is_listed_ = false;
  bool mostly_new_ = true;  // whether most keys of the last inserted batch were; true for the first
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_PREPARED_BATCH_INL_
