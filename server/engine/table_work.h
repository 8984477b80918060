// TableWork: what the ranks do together with a batch that all of them have, on a table. Rounds are made of
// it, and slotwise-bench times it.
//
// Thread-safety: the engine's thread only. Every call is collective.
// Errors: a Status that every rank agrees to; std::bad_alloc for want of scratch, std::runtime_error: the
// rank cannot go on. A call takes its place in the order of the device's work, and waits for it no longer
// than the ranks' agreement takes.
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
#include "server/engine/output_distributor.h"
#include "server/engine/tables.h"
#include "slotwise/batch.h"
#include "slotwise/status.h"

namespace slotwise {

// RoomMaker: what a round does for a table that its batch would make too full, between the ranks' agreement
// and the insertion. Without one, the batch is refused.
class RoomMaker {
 public:
  virtual ~RoomMaker() = default;
  RoomMaker(const RoomMaker&) = delete;
  RoomMaker& operator=(const RoomMaker&) = delete;

  // Returns whether MakeRoom gets `more` rows into the table, which has `rows` on all ranks together: the
  // same on every rank.
  virtual bool CanMakeRoom(const Table& table, std::uint64_t rows, std::uint64_t more) = 0;
  // REQUIRES: CanMakeRoom; all ranks have agreed to all that the round needs besides. Removes rows of the
  // table on this rank, but of no key of the batch; then the batch is prepared anew. Collective.
  virtual void MakeRoom(Table& table, const BatchView& batch, std::uint64_t rows, std::uint64_t more) = 0;

 protected:
  RoomMaker() = default;
};

class TableWork {
 public:
  // The arguments outlive it. Bags travel by `exchange`. No batch may bring one rank new rows of more bytes
  // than `max_new_bytes`: that rank writes them alone, and the others wait. `room_maker`: null, or the same
  // on every rank.
  TableWork(Device& device, Collective& collective, Exchange& exchange,
            const DistributionOptions& distribution,
            std::uint64_t max_new_bytes = std::numeric_limits<std::uint64_t>::max(),
            RoomMaker* room_maker = nullptr);

  // Returns OK if every rank's status is OK; else this rank's own, or one that says why another rank cannot
  // (refusals.h).
  Status Agree(const Status& mine);

  // `room` says why this rank cannot have so many new rows, of all tables, for want of something that is not
  // theirs.
  using RoomFor = std::function<Status(std::uint64_t new_rows)>;
  // Whether any rank's shard may have got new keys by the last call that inserted. The same on every rank.
  bool inserted_new_keys() const { return inserted_new_keys_; }
  // The table of those of the last call that inserted which was why it was refused; null if it was not, or if
  // no table alone was why. The same on every rank.
  const Table* refused() const { return refused_; }

  // A table, and a batch that a round has of it.
  struct Share {
    Table* table = nullptr;
    BatchView batch;
  };
  // Finds the rows of the batches' keys; keys without a row stay so. Here and below, several tables' batches
  // wait for the device and for the other ranks as often as one. REQUIRES: no table twice.
  // The batches are in the order of `shares`, and are kept until the next call that prepares some.
  Result<std::span<FoundBatch>> Prepare(std::span<const Share> shares);
  // Also gives the batches' new keys rows, in all tables and on all ranks or, with a reason, in none. All
  // ranks have the same reason if a table or a rank would have too many rows, or a rank would get too many
  // bytes of new ones. REQUIRES: `purpose` is kInsert or kPush.
  Result<std::span<InsertedBatch>> PrepareAndInsert(std::span<const Share> shares,
                                                    PrepareFor purpose = PrepareFor::kInsert,
                                                    const RoomFor& room = {});

  // The type that Pool can write the table's bags in: `wanted`, if no rank or division comes after the sums.
  DataType TypeOfPooled(const Table& table, DataType wanted) const;
  // REQUIRES: `pooled` is of a TypeOfPooled; the batch and `bags` are of `table`. `pooled` becomes this
  // rank's bags over all ranks, before the combiner's division: [bags_of[rank]][dim] in device memory.
  // Returns the stream in whose order that happens.
  Stream& Pool(Table& table, FoundBatch& batch, const DistributedBags& bags, DistributionArrays& arrays,
               Numbers pooled);
  // Whether there are no partial sums, because there is one rank: then FoundBatch::Pool may pool ranges of
  // this rank's bags, which may lie anywhere.
  bool CanPoolRanges() const { return collective_.size() == 1; }

  // Whether UpdateByMine is the way to update: by the gradients of this rank's bags alone. `in_part_order`:
  // the ranks' bags lie in the batch in rank order.
  bool TakesMineAlone(const DistributedBags& bags, bool in_part_order) const;
  // Does one optimizer step for each row that occurs in the batch. REQUIRES: as GroupedBatch::Update.
  // `gradients` are those of all the batch's bags, in the batch's order, in device memory, ordered before the
  // device's work.
  void Update(Table& table, GroupedBatch batch, const float* gradients, const StepScalars& scalars);
  // Does the same by the gradients of this rank's bags. REQUIRES: TakesMineAlone.
  void UpdateByMine(Table& table, InsertedBatch batch, const DistributedBags& bags, const float* gradients,
                    const StepScalars& scalars, DistributionArrays& arrays);

  const OutputDistributor& distributor() const { return distributor_; }

 private:
  // What this rank has prepared of a table's batch.
  struct Prepared {
    Table* table;
    Result<NewBatch> batch;
  };
  // A table that has to lose rows first, by its place in a round.
  struct TooFull {
    std::size_t place;
    std::uint64_t rows;
    std::uint64_t new_rows;
  };
  // Fills prepared_.
  void PrepareNew(std::span<const Share> shares, PrepareFor purpose);
  // The ranks agree that the keys that are new by what this rank has prepared get rows, of all tables and on
  // all ranks, or none. Fills too_full_, if `room_maker` is not null.
  Status AgreeToInsert(std::span<Prepared> tables, const RoomFor& room, RoomMaker* room_maker);
  // Asks `room` for what the tables bring, and puts its refusal in the first table's place. Returns whether
  // there is room.
  static bool AskForRoom(std::span<Prepared> tables, const RoomFor& room);
  // Returns why a batch is refused that would take one rank or several past the table's max_rows_of_rank.
  Status TooManyForARank(const Table& table, std::uint64_t new_rows);
  // Returns the bytes of the new rows that this rank would write, or a bound of them.
  static std::uint64_t NewBytes(std::span<const Prepared> tables);
  // Returns why a batch is refused that would bring one rank or several more than max_new_bytes_.
  Status TooManyNewBytes(std::uint64_t mine);

  Device& device_;
  Collective& collective_;
  OutputDistributor distributor_;
  const std::uint64_t max_new_bytes_;
  RoomMaker* const room_maker_;
  bool inserted_new_keys_ = false;
  const Table* refused_ = nullptr;
  // Of the last call that prepared batches, by the stages that they came through.
  std::vector<FoundBatch> found_;
  std::vector<Preparing> preparing_;
  std::vector<Prepared> prepared_;
  std::vector<TooFull> too_full_;
  std::vector<Inserting> inserting_;
  std::vector<InsertedBatch> inserted_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_TABLE_WORK_H_
