// Operations: what a round does, one function an operation. Every rank calls the same one with the same
// round.
//
// Each function answers those of the round's requests that came to this rank, at once or when the device has
// done the round's work, which may be after Run: rounds overlap (stage.h).
// Thread-safety: the engine's thread only. The constructor and Run are collective.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/exchange.h"
#include "server/engine/array_pool.h"
#include "server/engine/batch_gather.h"
#include "server/engine/checkpointing.h"
#include "server/engine/round.h"
#include "server/engine/round_log.h"
#include "server/engine/round_record.h"
#include "server/engine/stage.h"
#include "server/engine/table_maker.h"
#include "server/engine/table_work.h"
#include "server/engine/tables.h"
#include "server/engine/ticket_book.h"

namespace slotwise {

class Operations {
 public:
  // The arguments outlive it. `tickets` has every request of this rank that a round names. `max_round_bytes`:
  // what a round gathers at most. Rounds that change state go into `log`.
  Operations(Device& device, Collective& collective, const Exchanges& exchanges, const TableMaker& maker,
             std::uint64_t max_round_bytes, const TravelOptions& travel, ArrayPool& arrays, Tables& tables,
             TicketBook& tickets, RoundLog& log, Checkpointing& checkpointing);

  // Runs the round's operation; `carried` may have batches of it. It may leave work to the device, and
  // answers to a later call of Run, of the stages or of the log.
  void Run(const Round& round, const CarriedBatches& carried = {});

  // Returns the tables that the last round has replaced by a checkpoint's, once.
  std::vector<TableId> TakeReplacedTables() { return std::exchange(replaced_, {}); }

  // Returns the stages of the rounds that Run left to the device.
  Stages& stages() { return stages_; }

 private:
  // A batch may bring one rank new rows of so many rounds' bytes.
  static constexpr std::uint64_t kRoundsOfNewRows = 8;

  // Says which tables' shards are about to work, so that others give memory back.
  void UseScratch(const Round& round);
  void Dispatch(const Round& round);
  // Tells the round's tables' counters what it was, and what they are now.
  void CountRound(const Round& round);
  void Lookup(const Round& round);  // lookup.cc
  // Serves lookups of several tables, in one mode, which wait for the device and for the other ranks as often
  // as those of one table. REQUIRES: no table twice.
  void LookupTogether(std::span<const Round* const> rounds);
  void LookupOneByOne(const Round& round);
  void Push(const Round& round);         // push.cc
  void CreateTable(const Round& round);  // table_operations.cc
  void DropTable(const Round& round);
  void SaveCheckpoint(const Round& round);
  void OnCheckpointEvent(const Round& round);
  void LoadCheckpoint(const Round& round);
  // FAILED_PRECONDITION: the checkpoint's tables, or `only` those, cannot take the place of those that are
  // there. The same on every rank.
  Status FitsHere(const Manifest& checkpoint, std::span<const TableId> only) const;
  void DescribeSession(const Round& round);
  void Summarize(const Round& round, Table& table);
  void SetLearningRate(const Round& round, Table& table);
  void Import(const Round& round, Table& table);  // row_operations.cc
  void Erase(const Round& round, Table& table);
  // One rank works alone, and the others have no part in the round.
  void ListKeys(const Round& round, Table& table);
  void ReadRows(const Round& round, Table& table);

  // What a round does on one table, and where the parts lie in the table's batch.
  struct TableBatch {
    const Round& round;
    Table& table;
    BatchLayout layout;

    std::size_t bags_of(Rank rank) const { return layout.bags_of[static_cast<std::size_t>(Value(rank))]; }
    TableShare share() const { return {&round, &layout}; }
    TravellingBags bags() const { return {layout.bags_of, layout.size.keys, table.info.options.dim}; }
  };
  TableBatch TableBatchOf(const Round& round);
  // Returns each table's batch, gathered from all ranks.
  std::vector<TableWork::Share> Gather(Stage& stage, std::span<const TableBatch> batches);
  // Refuses a step that could not be prepared. Those hear it first who sent parts of the table that is why.
  void RefuseStep(std::span<const TableBatch> batches, const Status& why, Stage& stage);
  // Counts this rank's parts of a step that will be the table's next one.
  void CountParts(const TableBatch& batch);
  // Updates the tables' rows by a step that was prepared and inserted.
  void Update(Stage& stage, std::span<const TableBatch> batches);

  // Memory of answers, and the reservations that it is charged to: they end with the last of the answers.
  struct AnswerMemory {
    std::vector<Reservation> reservations;
    std::shared_ptr<std::byte[]> values;
  };
  // Lookups of this rank that follow each other in a round, and whose answers are of one type and lie behind
  // each other: numbers [first, end) of those that are pooled.
  struct LookupRun {
    DataType type = DataType::kFloat32;
    std::size_t first = 0;
    std::size_t end = 0;
    bool placed = false;     // where the lookups want it
    bool reachable = false;  // the device can write there itself
    std::shared_ptr<AnswerMemory> memory = std::make_shared<AnswerMemory>();

    std::byte* values() const { return memory->values.get(); }
    std::size_t size() const { return end - first; }
    std::size_t bytes() const { return size() * BytesOf(type); }
    // Whether a lookup's numbers, which are pooled at `at`, may be the run's next.
    bool GoesOnWith(const LookupRequest& lookup, std::size_t at) const;
  };
  // Bags [first, last) of a table that follow each other in a run: its numbers from `at` on.
  struct PooledPiece {
    std::size_t table = 0;  // of the round's
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::size_t run = 0;
    std::size_t at = 0;
  };
  // The numbers that lookups of this rank pool, one table's behind the other's.
  struct PooledNumbers {
    std::vector<std::size_t> first;  // [tables] where the table's begin: at a multiple of kAlign
    std::size_t size = 0;
    std::vector<LookupRun> runs;
    std::vector<std::size_t> run_of;  // of each of the lookups, in their order
    std::vector<PooledPiece> pieces;

    // Any table's numbers then begin at a multiple of 64 bytes.
    static constexpr std::size_t kAlign = 32;
  };
  PooledNumbers PooledBy(std::span<const TableBatch> batches);
  // Pools this rank's samples of the prepared batches over all ranks, into arrays that become the runs'
  // values. They are there when the stage's stream is done.
  void PoolMine(Stage& stage, std::span<const TableBatch> batches, std::span<const TableWork::Share> gathered,
                PooledNumbers& numbers);
  // Whether each piece can be pooled where its run lies, and does so.
  bool PoolsInPlace(std::span<const TableBatch> batches, const PooledNumbers& numbers) const;
  void PoolInPlace(Stage& stage, std::span<const TableBatch> batches,
                   std::span<const TableWork::Share> gathered, const PooledNumbers& numbers);
  // Divides this rank's pooled bags [first, last) of a table as its combiner says.
  void DivideMine(Stage& stage, const TableBatch& batch, const BatchView& view, std::size_t first,
                  std::size_t last, float* pooled);
  // Writes the runs' values: `pooled`, in device memory, has all numbers of the runs.
  void BringToHost(Stage& stage, Numbers pooled, const std::vector<LookupRun>& runs);
  // Answers this rank's lookups when the device is done.
  void AnswerWithPooled(Stage& stage, std::span<const TableBatch> batches, PooledNumbers& numbers);

  bool IsMine(const Ticket& ticket) const { return ticket.rank == collective_.rank(); }
  // What a rank records of a round (recording.cc). Room is made before anything changes. If the log is off,
  // there is room, and the other calls do nothing.
  Status MakeRoomToRecord(const Round& round);
  TableWork::RoomFor RoomToRecord(const Round& round, std::size_t tables = 1);  // that a lookup is of
  // The ranks agree on it, for a round that travels no batch.
  Status AgreeOnRoomToRecord(std::uint64_t more_bytes = 0);
  void RecordBatchRound(RecordKind kind, const Round& round, std::span<const std::uint64_t> steps,
                        Stage& stage);
  void RecordNewKeysOf(const Table& table);
  void RecordNewKeysOfRound();
  // Returns a request's batch for the journal, in host memory; `stage` keeps what the device still reads.
  std::shared_ptr<const BatchPart> BatchToRecord(const Ticket& ticket, Stage& stage);

  // Answers the round's waiters on this rank, request.done(outcome), once the round is on every rank's disk,
  // if there is a journal. Their arrays stay with the stage that uses them.
  template <class Kind, class Outcome>
  void AnswerMineOnceRecorded(const Round& round, const Outcome& outcome, Stage* stage = nullptr) {
    AnswerMine<Kind>(
        round,
        [&](Kind& request) {
          const auto kept = std::make_shared<Kind>();  // with what the answer is charged to
          kept->done = std::move(request.done);
          if (log_.on() && !request.caller.is_server())
            request.caller.times().NoteApplied(CallTimes::Clock::now(), collective_.watchdog().waited());
          if constexpr (requires { request.answer_reservation; })
            kept->answer_reservation = std::move(request.answer_reservation);
          log_.Answer([kept, outcome] {
            kept->done(outcome);
            *kept = {};
          });
        },
        stage);
  }

  // Answers the round's waiters on this rank: answer(request). Their arrays stay with the stage that uses
  // them.
  template <class Kind, class Reply>
  void AnswerMine(const Round& round, Reply reply, Stage* stage = nullptr) {
    for (const Ticket& waiter : round.waiters) {
      if (!IsMine(waiter)) continue;
      Request request = tickets_.Take(waiter.number);
      // Where rounds do not overlap, all is done by now: whoever hears the answer finds the room.
      if (BatchPart* const batch = BatchOf(request); batch != nullptr && !stages_.overlap())
        batch->DropArrays();
      reply(std::get<Kind>(request));
      if (stage != nullptr) stage->Keep(std::move(request));
    }
  }

  Device& device_;
  Collective& collective_;
  const TableMaker& maker_;
  ArrayPool& arrays_;
  Tables& tables_;
  TicketBook& tickets_;
  RoundLog& log_;
  Checkpointing& checkpointing_;
  TableWork work_;
  Stages stages_;
  std::uint64_t round_ = 0;  // the one that is run
  CarriedBatches carried_;   // with its announcement
  std::vector<ScratchBudget::Batch> scratch_;
  std::vector<TableId> replaced_;  // by a checkpoint's, in the last round
  std::vector<NewKeys> new_keys_;  // that lookups of the round added on this rank, by table
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_H_
