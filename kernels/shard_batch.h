// A ShardBatch is the batch that a shard has prepared. Handles of the batch have types that say how far the
// batch has come. All code but the shards themselves uses the handles.
//
//     PrepareFind ─────► FoundBatch, which pools
//     PrepareErase ────► ErasableBatch ─► Erase
//     PrepareInsert ─┬─► Preparing ─► NewBatch ─► Inserting ─► InsertedBatch ─┬─► Assign
//     PreparePush ───┘                                         which pools    ├─► UpdateFromReceived
//                                                                             └─► GroupedBatch ─► Update
//
// The table does not change before Inserting; ranks agree on a batch while they have a NewBatch. Preparing
// and Inserting wait for the device only when they finish: a caller that begins the work of several tables,
// and then finishes all of it, waits about once.
//
// With several ranks, PlanAllToAll(bags_of, plan) lets only those bags travel that a rank has keys of:
//
//     PoolToSend(plan, out), then plan.AddReceived(stream, received, mine) of what all ranks sent
//     GradientsToSend(plan, gradients, out), then UpdateFromReceived(plan, received, scalars)
//
// A handle is moved, not copied, may be dropped at any stage, and does not keep its shard alive. A call on &&
// spends the handle, even if the call throws. Calls check what types cannot: they throw std::logic_error if
// the handle was spent, or if its shard has prepared another batch since or has forgotten this one.
// Thread-safety: same as the device.
#ifndef SLOTWISE_KERNELS_SHARD_BATCH_H_
#define SLOTWISE_KERNELS_SHARD_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/all_to_all_plan.h"
#include "kernels/step_scalars.h"
#include "kernels/stream.h"
#include "slotwise/batch.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

class Shard;

// A Lent<T> does not own its object: it moves as a unique_ptr does, and its destructor does nothing.
struct LetBe {
  void operator()(const void* /*of_shard*/) const {}
};
template <class T>
using Lent = std::unique_ptr<T, LetBe>;

// Says what a batch is prepared for: to find rows, where a missing row counts as zeros or as its initial
// values; to insert missing ones; for a push; or to erase keys.
enum class PrepareFor : std::uint8_t { kFind, kFindOrInitial, kInsert, kPush, kErase };

// Admitting says what a table with an admission has to know for a push.
struct Admitting {
  std::uint64_t step = 0;       // the push's, among the table's
  Shard* candidates = nullptr;  // the candidates' table; null: the table has none
};

// Says how a push raises the counts of a Bloom counter.
struct CounterRaises {
  const std::uint32_t* of_keys = nullptr;  // [keys without a row] as body::Raise has them, in device memory
  std::uint32_t window = 0;  // a block's counts halve at so many occurrences; 0: the counter is exact
};

// The keys without a row that this rank has in a push to a table with candidates, each as often as it
// occurred and in a bag of its own, in device memory: all, and those that are admitted. With a Bloom counter
// `absent` has the keys' blocks in their place, and `admitted` is empty, because nothing can be taken out of
// the counter. They last until the table's shard prepares another batch.
struct CandidateKeys {
  BatchView absent;
  BatchView admitted;
  CounterRaises raises = {};
};

// Says how many rows an insert would add: exactly, or at most.
struct NewRows {
  std::uint64_t count = 0;
  bool exact = true;
};

// Bags [first, last) of a batch, or all from `first` on.
struct BagRange {
  std::uint32_t first = 0;
  std::uint32_t last = std::numeric_limits<std::uint32_t>::max();
};

// A shard implements the calls of all handles here; the handles say what each call does. With a plan, Update
// does what InsertedBatch::UpdateFromReceived does. Update groups rows if GroupRows has not.
class ShardBatch {
 public:
  virtual ~ShardBatch() = default;
  ShardBatch(const ShardBatch&) = delete;
  ShardBatch& operator=(const ShardBatch&) = delete;

  virtual std::uint64_t ExactNewRows() = 0;
  virtual CandidateKeys Candidates() = 0;
  virtual void Protect() = 0;
  virtual void BeginInsert(std::uint64_t score) = 0;
  virtual void FinishInsert() = 0;
  virtual std::vector<Key> InsertedKeys() = 0;
  virtual void Pool(Numbers partial, const BagRange& bags) = 0;
  virtual void PlanAllToAll(std::span<const std::size_t> bags_of, AllToAllPlan& plan) = 0;
  virtual void PoolToSend(AllToAllPlan& plan, Numbers partial) = 0;
  virtual void GradientsToSend(AllToAllPlan& plan, const float* gradients, float* sent) = 0;
  virtual std::uint64_t CopyBeforeWrite() = 0;
  virtual void GroupRows() = 0;
  virtual void PlanSums() = 0;
  virtual void Update(const float* gradients, AllToAllPlan* plan, const StepScalars& scalars) = 0;
  virtual void Touch(std::uint64_t step) = 0;
  virtual void RaiseCounters(const CounterRaises& raises) = 0;
  virtual void Assign(const float* values, std::uint32_t columns) = 0;
  virtual std::uint64_t Erase(std::vector<Key>* removed) = 0;

 protected:
  ShardBatch() = default;
};

// The batch that a shard has prepared.
struct PreparedRows {
  ShardBatch* batch = nullptr;
  NewRows new_rows;
};

// Throws std::logic_error.
[[noreturn]] void ThrowOldBatch();

// The base class of all handles.
class BatchHandle {
 public:
  // `newest` is the number of the shard's newest batch, which is this one.
  BatchHandle(ShardBatch& batch, const std::uint64_t& newest)
      : batch_(&batch), newest_(&newest), number_(newest) {}

 protected:
  // Throws std::logic_error if the handle was spent, or is of an older batch.
  ShardBatch& batch() const {
    if (batch_ == nullptr || number_ != *newest_) ThrowOldBatch();
    return *batch_;
  }
  // Does the same, and spends the handle.
  ShardBatch& Take() {
    ShardBatch& taken = batch();
    batch_.reset();
    return taken;
  }

 private:
  Lent<ShardBatch> batch_;  // null if the handle was spent or moved from
  const std::uint64_t* newest_;
  std::uint64_t number_;
};

// A batch whose rows are found. A key without a row counts as zeros, unless PrepareFind says otherwise.
class FoundBatch : protected BatchHandle {
 public:
  explicit FoundBatch(BatchHandle&& prepared) : BatchHandle(std::move(prepared)) {}

  // Protects the batch's rows from an eviction (Shard::CountPlaces). REQUIRES: the table keeps scores.
  void Protect() { batch().Protect(); }

  // Writes, for every bag of the batch, the sum of the rows (times weights) of this rank's keys in key order:
  // [bags][dim], zeros where a bag has no key here. Sums are float32, and each is rounded once to
  // partial.type as it is written. With a range, writes these bags alone: [last - first][dim].
  void Pool(Numbers partial, const BagRange& bags = {}) { batch().Pool(partial, bags); }

  // REQUIRES: `bags_of` are the ranks' bags of the batch, in rank order; there are at most
  // AllToAllPlan::kMostRanks ranks; ranks times the most bags of a rank fits in 32 bits. Begins to fill
  // `plan` with the traffic of the batch; does nothing if `plan` is the batch's already. Throws
  // std::bad_alloc.
  void PlanAllToAll(std::span<const std::size_t> bags_of, AllToAllPlan& plan) {
    batch().PlanAllToAll(bags_of, plan);
  }
  // REQUIRES: `plan` is the batch's, which is checked. Pools, as Pool does, the bags of which this rank owns
  // keys: [Σ with_keys_here][dim], at most all bags.
  void PoolToSend(AllToAllPlan& plan, Numbers partial) { batch().PoolToSend(plan, partial); }

  // Saves those of the batch's rows that an open snapshot still has to read, so that the batch may change
  // them. Returns 0, or how many rows lack room in the copy-on-write buffer. Then no row was saved; the
  // caller reads more of the snapshot, so that rows free their room or need none, and asks again. Reading the
  // whole snapshot always suffices. Calls that change rows do this first, and throw std::logic_error, with
  // nothing changed, if there is no room. Waits if a snapshot is open. Throws std::bad_alloc.
  std::uint64_t CopyBeforeWrite() { return batch().CopyBeforeWrite(); }
};

// A batch whose keys may be erased: there is room to remember their rows.
class ErasableBatch : public FoundBatch {
 public:
  using FoundBatch::FoundBatch;

  // Erases the batch's keys and returns how many of them had a row. Adds these to `removed`, in no order, if
  // it is not null. Waits. Throws std::bad_alloc, before any key is erased.
  std::uint64_t Erase(std::vector<Key>* removed = nullptr) && { return Take().Erase(removed); }
};

// A batch whose occurrences are grouped by row.
class GroupedBatch : protected BatchHandle {
 public:
  explicit GroupedBatch(BatchHandle&& grouped) : BatchHandle(std::move(grouped)) {}

  // Plans the sums over many occurrences. Waits for GroupRows; Update then waits for the plan. Update would
  // do this itself, but a caller that plans for several shards first, and then updates them, waits about as
  // often as for one shard. Throws std::bad_alloc.
  void PlanSums() { batch().PlanSums(); }

  // REQUIRES: PreparePush prepared the batch, or no bag that has keys has the divisor 0. `gradients`,
  // float[bags][dim] in device memory, are those of the loss by the pooled values. Weighs and divides
  // gradients as the combiner did, sums those of each row, in blocks of 32 occurrences, and applies the
  // optimizer once a row. Throws std::bad_alloc, before any row has changed.
  void Update(const float* gradients, const StepScalars& scalars) && {
    Take().Update(gradients, nullptr, scalars);
  }
};

// A batch whose keys all have rows, but for keys that a push to a table with an admission does not admit.
class InsertedBatch : public FoundBatch {
 public:
  using FoundBatch::FoundBatch;

  // Returns the keys that got rows, in no order. Waits. Throws std::bad_alloc.
  std::vector<Key> InsertedKeys() { return batch().InsertedKeys(); }

  // Begins the first part of Update, which needs no gradients. Does not wait. Throws std::bad_alloc.
  GroupedBatch GroupRows() && {
    batch().GroupRows();
    return GroupedBatch(std::move(*this));
  }
  // See GroupedBatch::Update.
  void Update(const float* gradients, const StepScalars& scalars) && {
    Take().Update(gradients, nullptr, scalars);
  }

  // REQUIRES: `plan` is the batch's, which is checked. Writes each row of `gradients`,
  // float[bags_of[rank]][dim], once for each rank that owns keys of the bag:
  // float[Σ with_keys_there][dim], in rank order.
  void GradientsToSend(AllToAllPlan& plan, const float* gradients, float* sent) {
    batch().GradientsToSend(plan, gradients, sent);
  }
  // REQUIRES: as for Update; `plan` is the batch's, which is checked. Updates rows by the gradients that all
  // ranks' GradientsToSend wrote for this rank, in rank order: float[Σ with_keys_here][dim].
  void UpdateFromReceived(AllToAllPlan& plan, const float* received, const StepScalars& scalars) && {
    Take().Update(received, &plan, scalars);
  }

  // REQUIRES: the table keeps scores, and has no admission. Gives rows the scores that a push at this step of
  // the table would give them, and changes nothing else. Waits. Throws std::bad_alloc.
  void Touch(std::uint64_t step) && { Take().Touch(step); }

  // REQUIRES: the table is a Bloom counter's candidates' table; the batch has the blocks of CandidateKeys,
  // and `raises` is of the same CandidateKeys. Raises the keys' counts, adds their occurrences to the tallies
  // of their blocks, and halves the blocks that have counted a whole window. Waits. Throws std::bad_alloc,
  // before any row has changed.
  void RaiseCounters(const CounterRaises& raises) && { Take().RaiseCounters(raises); }

  // REQUIRES: one key a bag. `values` is float[bags][columns] in device memory: `columns` is the whole
  // record's length, or dim: then the rows' state becomes that of new rows. Of repeated keys the last one
  // counts. Rows get the score that the batch was inserted with, unless a record has another. Throws
  // std::bad_alloc, before any row has changed.
  void Assign(const float* values, std::uint32_t columns) && { Take().Assign(values, columns); }
};

// A batch whose absent keys are being given rows.
class Inserting : protected BatchHandle {
 public:
  explicit Inserting(BatchHandle&& begun) : BatchHandle(std::move(begun)) {}

  // Waits, if there were absent keys.
  InsertedBatch Finish() && {
    batch().FinishInsert();
    return InsertedBatch(std::move(*this));
  }
};

// A batch for whose absent keys there is room, unless they would take the shard past the max_rows of its
// place or table. Then the count of new rows is exact, and the ranks have to refuse the batch.
class NewBatch : protected BatchHandle {
 public:
  NewBatch(BatchHandle&& prepared, const NewRows& new_rows)
      : BatchHandle(std::move(prepared)), new_rows_(new_rows) {}

  // Returns how many rows Insert would add: exactly, or at most.
  const NewRows& new_rows() const { return new_rows_; }
  // Counts how many rows Insert would add, each key once, and returns the number, as new_rows() does from now
  // on. Waits. Throws std::bad_alloc.
  std::uint64_t ExactNewRows() {
    new_rows_ = {batch().ExactNewRows(), true};
    return new_rows_.count;
  }

  // REQUIRES: PreparePush prepared the batch, of a table with candidates.
  CandidateKeys Candidates() const { return batch().Candidates(); }

  // See FoundBatch::Protect.
  void Protect() { batch().Protect(); }

  // Gives absent keys rows with their initial values and, in a table that keeps scores, with `score`. Cannot
  // fail: there is room for them.
  InsertedBatch Insert(std::uint64_t score = 0) && { return std::move(*this).BeginInsert(score).Finish(); }
  // Begins to insert. Does not wait.
  Inserting BeginInsert(std::uint64_t score = 0) && {
    batch().BeginInsert(score);
    return Inserting(std::move(*this));
  }

 private:
  NewRows new_rows_;
};

// A batch whose new keys the device is counting.
class Preparing {
 public:
  Preparing(Shard& shard, std::uint64_t number) : shard_(&shard), number_(number) {}

  // Waits. RESOURCE_EXHAUSTED: no memory for the batch or its new rows, or more than kMaxRowsPerShard; the
  // table is as it was.
  Result<NewBatch> Finish() &&;
  // Does the same and then NewBatch::Insert, for callers that no other rank has to agree with.
  Result<InsertedBatch> Insert(std::uint64_t score = 0) &&;

 private:
  Lent<Shard> shard_;
  std::uint64_t number_;  // the batch's
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_SHARD_BATCH_H_
