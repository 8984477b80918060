// TableWork: the steps of a round on a batch that every rank has: find and insert keys, pool, update. Rounds
// consist of these steps, and slotwise-bench times them.
//
// Thread-safety: the engine's thread only. Every call is collective.
// Errors: a Status on which all ranks agree. After std::bad_alloc (no scratch memory) or std::runtime_error
// the rank cannot go on. A call's work joins the order of the device's work; the call waits for the device no
// longer than the ranks need to agree.
#ifndef SLOTWISE_SERVER_ENGINE_TABLE_WORK_H_
#define SLOTWISE_SERVER_ENGINE_TABLE_WORK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/exchange.h"
#include "server/engine/evictor.h"
#include "server/engine/output_distributor.h"
#include "server/engine/tables.h"
#include "slotwise/batch.h"
#include "slotwise/status.h"

namespace slotwise {

class TableWork {
 public:
  // The arguments outlive it. Bags travel by `exchange`. A batch may bring one rank at most `max_new_bytes`
  // bytes of new rows, because the other ranks wait while that rank writes them.
  TableWork(Device& device, Collective& collective, Exchange& exchange,
            const DistributionOptions& distribution,
            std::uint64_t max_new_bytes = std::numeric_limits<std::uint64_t>::max(),
            Evictor::BeforeChange before_change = {});

  // Returns OK if every rank's status is OK; otherwise this rank's own error, or one that gives another
  // rank's reason (refusals.h).
  Status Agree(const Status& mine);

  // Returns OK, or why this rank has no room outside its tables, such as in its journal, for what all tables
  // bring: new rows, and evictions of which the journal has so many bytes.
  using RoomFor = std::function<Status(std::uint64_t new_rows, std::uint64_t bytes_of_evictions)>;
  // Returns whether the last PrepareAndInsert may have inserted new keys on any rank. The same on every rank.
  bool inserted_new_keys() const { return inserted_new_keys_; }
  // Returns the table because of which the last PrepareAndInsert was refused; null if it was not refused, or
  // not because of one table. The same on every rank.
  const Table* refused() const { return refused_; }

  // A table, and the round's batch for it.
  struct Share {
    Table* table = nullptr;
    BatchView batch;
    Table* candidates = nullptr;  // of a push: the table's, or null if it has none
    bool or_initial = false;      // of Prepare: keys without a row count as their initial values
  };
  // Finds the rows of the batches' keys; a key without a row gets none. Here and below, the batches of
  // several tables wait for the device and the other ranks as often as one batch does. Returns the batches in
  // the order of `shares`; they stay until the next call that prepares batches. REQUIRES: no table twice.
  Result<std::span<FoundBatch>> Prepare(std::span<const Share> shares);
  // Also gives rows to the batches' new keys, in all tables and on all ranks, or in none and returns why. A
  // table that would get too full evicts first, if its options say so; evictions() says what. New rows get
  // the score of the table's next step, or of the step behind `steps` if that is more. The
  // reason is the same on all ranks if a table or a rank would get too many rows, or a rank too many bytes of
  // new rows. REQUIRES: `purpose` is kInsert or kPush.
  Result<std::span<InsertedBatch>> PrepareAndInsert(std::span<const Share> shares,
                                                    PrepareFor purpose = PrepareFor::kInsert,
                                                    const RoomFor& room = {}, std::uint64_t steps = 0);
  // Counts, in the candidates' tables, the occurrences of the keys that had no row when PrepareAndInsert
  // prepared these shares for a push, and removes those that were admitted. Comes before the shards prepare
  // other batches.
  void CountCandidates(std::span<const Share> shares);
  // Returns what the last PrepareAndInsert has evicted, by table; empty if it was refused.
  std::span<const Eviction> evictions() const { return evictor_.evictions(); }
  Evictor& evictor() { return evictor_; }

  // Returns the type in which Pool can write the table's bags: `wanted`, if the sums need no other rank's
  // sums and no division.
  DataType TypeOfPooled(const Table& table, DataType wanted) const;
  // Writes this rank's bags, summed over all ranks, to `pooled`: [bags_of[rank]][dim] in device memory,
  // before the combiner's division. Returns the stream that orders the writes. REQUIRES: `pooled` has a type
  // that TypeOfPooled returned; the batch and `bags` belong to `table`.
  Stream& Pool(Table& table, FoundBatch& batch, const DistributedBags& bags, DistributionArrays& arrays,
               Numbers pooled);
  // Returns whether FoundBatch::Pool may pool ranges of bags to any places: one rank has no partial sums.
  bool CanPoolRanges() const { return collective_.size() == 1; }

  // Returns whether to update by UpdateByMine, by the gradients of this rank's bags alone. `in_part_order`:
  // the ranks' bags lie in the batch in rank order.
  bool TakesMineAlone(const DistributedBags& bags, bool in_part_order) const;
  // Does one optimizer step for each row that occurs in the batch. `gradients` has the gradients of all the
  // batch's bags, in the batch's order, in device memory; they are ordered before the device's work.
  // REQUIRES: as GroupedBatch::Update.
  void Update(Table& table, GroupedBatch batch, const float* gradients, const StepScalars& scalars);
  // Does the same by the gradients of this rank's bags. REQUIRES: TakesMineAlone.
  void UpdateByMine(Table& table, InsertedBatch batch, const DistributedBags& bags, const float* gradients,
                    const StepScalars& scalars, DistributionArrays& arrays);

  const OutputDistributor& distributor() const { return distributor_; }

 private:
  // A table, and its batch as this rank has prepared it.
  struct Prepared {
    Table* table;
    Result<NewBatch> batch;
    Table* of = nullptr;  // if this is a table of candidates: the table whose they are
  };
  // Fills prepared_: the shares' batches, and behind them those of the shares' candidates.
  void PrepareNew(std::span<const Share> shares, PrepareFor purpose);
  // Lets the ranks agree whether the prepared batches' new keys get rows, in all tables and on all ranks, or
  // none do. Fills too_full_ with the tables that have to evict first.
  Status AgreeToInsert(std::span<Prepared> tables, const RoomFor& room);
  // Asks `room` for the tables' new rows. Returns whether there is room; if not, the first table's batch
  // becomes the refusal.
  static bool AskForRoom(std::span<Prepared> tables, const RoomFor& room);
  static std::uint64_t NewRowsOf(std::span<const Prepared> tables);
  // Returns the refusal of a batch that would bring a rank more rows than the table's max_rows_of_rank.
  Status TooManyForARank(const Table& table, std::uint64_t new_rows);
  // Returns the bytes of the new rows that this rank would write, or an upper bound.
  static std::uint64_t NewBytes(std::span<const Prepared> tables);
  // Returns the refusal of a batch that would bring a rank more than max_new_bytes_.
  Status TooManyNewBytes(std::uint64_t mine);

  Device& device_;
  Collective& collective_;
  OutputDistributor distributor_;
  const std::uint64_t max_new_bytes_;
  const Evictor::BeforeChange before_change_;
  Evictor evictor_;
  bool inserted_new_keys_ = false;
  const Table* refused_ = nullptr;
  // The batches of the last call that prepared some, by the stages of their preparation.
  std::vector<FoundBatch> found_;
  std::vector<Preparing> preparing_;
  std::vector<Prepared> prepared_;
  std::vector<Evictor::Full> too_full_;
  std::vector<Inserting> inserting_;
  std::vector<InsertedBatch> inserted_;
  std::vector<CandidateKeys> candidate_keys_;  // of the shares with candidates, in their order
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_TABLE_WORK_H_
