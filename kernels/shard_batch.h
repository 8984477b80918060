// ShardBatch: what a shard does with the batch that it has prepared; and handles of such a batch, whose types
// say how far the batch has come. All but shards themselves use the handles.
//
//     PrepareFind ─────► FoundBatch, which pools
//     PrepareErase ────► ErasableBatch ─► Erase
//     PrepareInsert ─┬─► Preparing ─► NewBatch ─► Inserting ─► InsertedBatch ─┬─► Assign
//     PreparePush ───┘                                         which pools    ├─► UpdateFromReceived
//                                                                             └─► GroupedBatch ─► Update
//
// Nothing changes before Inserting; ranks agree while they have a NewBatch. Preparing and Inserting wait for
// the device only as they finish: a caller that begins what several tables do, and then finishes all of it,
// waits about once.
//
// With several ranks, PlanAllToAll(bags_of, plan) lets only those bags travel that a rank has keys of:
//
//     PoolToSend(plan, out), then plan.AddReceived(stream, received, mine) of what all ranks sent
//     GradientsToSend(plan, gradients, out), then UpdateFromReceived(plan, received, scalars)
//
// A handle is moved, not copied, may be left at any stage, and does not keep its shard. A call on && spends
// the handle, even if the call throws. What types cannot say is checked: a handle that was spent, or whose
// shard has prepared another batch since or has forgotten this one, throws std::logic_error.
// Thread-safety: the device's.
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
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

class Shard;

// Lent<T> points to what a shard owns: it moves as a unique_ptr does, and its end does nothing.
struct LetBe {
  void operator()(const void* /*of_shard*/) const {}
};
template <class T>
using Lent = std::unique_ptr<T, LetBe>;

// What a batch is prepared for: keys without a row stay so, or get one; for a push; or to be erased.
enum class PrepareFor : std::uint8_t { kFind, kInsert, kPush, kErase };

// How many rows an insert would add: exactly, or at most.
struct NewRows {
  std::uint64_t count = 0;
  bool exact = true;
};

// Bags [first, last) of a batch, or all from `first` on.
struct BagRange {
  std::uint32_t first = 0;
  std::uint32_t last = std::numeric_limits<std::uint32_t>::max();
};

// The calls of all handles, as a shard answers them: the handles say what each does. With a plan, Update does
// what InsertedBatch::UpdateFromReceived does. Update groups rows if GroupRows has not.
class ShardBatch {
 public:
  virtual ~ShardBatch() = default;
  ShardBatch(const ShardBatch&) = delete;
  ShardBatch& operator=(const ShardBatch&) = delete;

  virtual std::uint64_t ExactNewRows() = 0;
  virtual void BeginInsert() = 0;
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
  virtual void Assign(const float* values, std::uint32_t columns) = 0;
  virtual std::uint64_t Erase(std::vector<Key>* removed) = 0;

 protected:
  ShardBatch() = default;
};

// What a shard has prepared.
struct PreparedRows {
  ShardBatch* batch = nullptr;
  NewRows new_rows;
};

// Throws std::logic_error.
[[noreturn]] void ThrowOldBatch();

// What all handles are made of.
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
  Lent<ShardBatch> batch_;  // null: spent, or moved from
  const std::uint64_t* newest_;
  std::uint64_t number_;
};

// A batch whose keys' rows are found. A key without a row counts as zeros.
class FoundBatch : protected BatchHandle {
 public:
  explicit FoundBatch(BatchHandle&& prepared) : BatchHandle(std::move(prepared)) {}

  // Writes, for every bag of the batch, the sum of the rows (times weights) of this rank's keys in key order:
  // [bags][dim], zeros where a bag has no key here. Sums are float32, and each is rounded once to
  // partial.type as it is written. With a range, writes these bags alone: [last - first][dim].
  void Pool(Numbers partial, const BagRange& bags = {}) { batch().Pool(partial, bags); }

  // REQUIRES: `bags_of` are the ranks' bags of the batch, in rank order; there are at most
  // AllToAllPlan::kMostRanks ranks; ranks times the most bags of a rank fits in 32 bits. Begins to fill
  // `plan` with the traffic of the batch: does nothing if `plan` is the batch's already. Throws
  // std::bad_alloc.
  void PlanAllToAll(std::span<const std::size_t> bags_of, AllToAllPlan& plan) {
    batch().PlanAllToAll(bags_of, plan);
  }
  // REQUIRES: `plan` is the batch's, which is checked. Pools, as Pool does, the bags of which this rank owns
  // keys: [Σ with_keys_here][dim], at most all bags.
  void PoolToSend(AllToAllPlan& plan, Numbers partial) { batch().PoolToSend(plan, partial); }

  // If a snapshot is open: saves those of the batch's rows that the snapshot still has to read, so that the
  // batch may change them. Returns how many rows more would have to have room: if any, none were saved, and
  // the caller reads more of the snapshot, whose rows make room or need no more, and asks again. Reading all
  // of it always helps. What changes rows does this itself, and throws std::logic_error, with nothing
  // changed, if there is no room. Waits if a snapshot is open. Throws std::bad_alloc.
  std::uint64_t CopyBeforeWrite() { return batch().CopyBeforeWrite(); }
};

// A batch whose keys may be erased: there is room to remember their rows.
class ErasableBatch : public FoundBatch {
 public:
  using FoundBatch::FoundBatch;

  // Forgets the batch's keys; returns how many of them had a row, and adds these to `removed`, if it is not
  // null, in no order: then waits. Throws std::bad_alloc, before any row is forgotten.
  std::uint64_t Erase(std::vector<Key>* removed = nullptr) && { return Take().Erase(removed); }
};

// A batch whose occurrences are grouped by row.
class GroupedBatch : protected BatchHandle {
 public:
  explicit GroupedBatch(BatchHandle&& grouped) : BatchHandle(std::move(grouped)) {}

  // Plans how sums over many occurrences are made. Update would do so first, and wait for GroupRows; this
  // waits for GroupRows, and Update then for this: so Update of several shards waits about as often as of
  // one. Throws std::bad_alloc.
  void PlanSums() { batch().PlanSums(); }

  // REQUIRES: the batch is of PreparePush, or no bag that has keys has the divisor 0. `gradients`,
  // float[bags][dim] in device memory, are those of the loss by the pooled values. Weighs and divides
  // gradients as the combiner did, sums each row's over its occurrences, in blocks of 32, and applies the
  // optimizer once a row. Throws std::bad_alloc for want of scratch, before any row has moved.
  void Update(const float* gradients, const StepScalars& scalars) && {
    Take().Update(gradients, nullptr, scalars);
  }
};

// A batch whose keys all have rows.
class InsertedBatch : public FoundBatch {
 public:
  using FoundBatch::FoundBatch;

  // Returns the keys that got rows, in no order. Waits. Throws std::bad_alloc.
  std::vector<Key> InsertedKeys() { return batch().InsertedKeys(); }

  // Begins what Update does first, which needs no gradients. Does not wait. Throws std::bad_alloc.
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
  // REQUIRES: as Update; `plan` is the batch's, which is checked. Updates by what all ranks' GradientsToSend
  // wrote for this rank, in rank order: float[Σ with_keys_here][dim].
  void UpdateFromReceived(AllToAllPlan& plan, const float* received, const StepScalars& scalars) && {
    Take().Update(received, &plan, scalars);
  }

  // REQUIRES: one key a bag. `values` is float[bags][columns] in device memory: `columns` is dim, and the
  // rows' state becomes that of new rows, or the whole record. Of repeated keys the last one counts. Throws
  // std::bad_alloc, before any row has moved.
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

// A batch for whose absent keys there is room, but that may take the shard past the place's or the table's
// max_rows: the count of new rows is exact then, and the ranks have to refuse the batch.
class NewBatch : protected BatchHandle {
 public:
  NewBatch(BatchHandle&& prepared, const NewRows& new_rows)
      : BatchHandle(std::move(prepared)), new_rows_(new_rows) {}

  // Returns how many rows Insert would add, as far as that is known.
  const NewRows& new_rows() const { return new_rows_; }
  // Finds out how many rows Insert would add, without counting a key twice, and returns that, as new_rows()
  // does from now on. Waits. Throws std::bad_alloc.
  std::uint64_t ExactNewRows() {
    new_rows_ = {batch().ExactNewRows(), true};
    return new_rows_.count;
  }

  // Gives absent keys rows with their initial values. Cannot fail: there is room for them.
  InsertedBatch Insert() && { return std::move(*this).BeginInsert().Finish(); }
  // Begins to do so. Does not wait.
  Inserting BeginInsert() && {
    batch().BeginInsert();
    return Inserting(std::move(*this));
  }

 private:
  NewRows new_rows_;
};

// A batch of which the device finds out how many keys are new.
class Preparing {
 public:
  Preparing(Shard& shard, std::uint64_t number) : shard_(&shard), number_(number) {}

  // Waits. RESOURCE_EXHAUSTED: no memory for the batch or its new rows, or more than kMaxRowsPerShard; the
  // table is as it was.
  Result<NewBatch> Finish() &&;
  // Does the same and then NewBatch::Insert, where no other rank has to agree.
  Result<InsertedBatch> Insert() &&;

 private:
  Lent<Shard> shard_;
  std::uint64_t number_;  // the batch's
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_SHARD_BATCH_H_
