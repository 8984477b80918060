// RoundContext: what an operation works with when a round runs it: this rank's tables, device and ranks, the
// requests of the round that came here, and the journal.
//
// Thread-safety: the engine's thread only. The constructor is collective.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_ROUND_CONTEXT_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_ROUND_CONTEXT_H_

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
#include "server/engine/carried_batches.h"
#include "server/engine/checkpointing.h"
#include "server/engine/operations/record_bytes.h"
#include "server/engine/round_log.h"
#include "server/engine/round_outcome.h"
#include "server/engine/schedule/pending_requests.h"
#include "server/engine/schedule/round.h"
#include "server/engine/stage.h"
#include "server/engine/table_maker.h"
#include "server/engine/table_work.h"
#include "server/engine/tables.h"

namespace slotwise {

// At most so many bytes record a round without a batch: a table's options are the most.
inline constexpr std::uint64_t kSmallRecord = 8192;

struct OperationTraits;

struct RoundContext {
  // A batch may bring one rank new rows of so many rounds' bytes.
  static constexpr std::uint64_t kRoundsOfNewRows = 8;

  // The arguments outlive it. `tickets` has every request of this rank that a round names. `max_round_bytes`:
  // what a round gathers at most. Rounds that change state go into `log`.
  RoundContext(Device& device, Collective& collective, const Exchanges& exchanges, const TableMaker& maker,
               std::uint64_t max_round_bytes, const DistributionOptions& distribution, ArrayPool& arrays,
               Tables& tables, PendingRequests& tickets, RoundLog& log, Checkpointing& checkpointing,
               RoomMaker* room_maker = nullptr);

  // Begin and End stand around a round of the operation; `with` may have batches of the round. Every rank
  // runs the same rounds. A round may leave work to the device, and answers to a later round, to the stages
  // or to the log.
  void Begin(const OperationTraits& operation, const Round& of, const CarriedBatches& with = {});
  void End(const Round& of);

  bool IsMine(const Ticket& ticket) const { return ticket.rank == collective.rank(); }

  // REQUIRES: the table is there. Return what a round does on a table's bags, and on its rows by key.
  TableBatch BagsOf(const Round& of) {
    Table& table = *tables.Get(of.table);
    return {of, table, table.info.options.slots, collective.size()};
  }
  TableBatch KeysOf(const Round& of) { return {of, *tables.Get(of.table), 1, collective.size()}; }

  // Answers the round's waiters on this rank: answer(request). Their arrays stay with the stage that uses
  // them.
  template <class R, class Reply>
  void AnswerMine(const Round& of, Reply reply, Stage* stage = nullptr) {
    for (const Ticket& waiter : of.waiters) {
      if (!IsMine(waiter)) continue;
      Request request = tickets.Take(waiter.number);
      // Where rounds do not overlap, all is done by now: a caller that hears the answer finds the room.
      if (BatchPart* const batch = request.batch(); batch != nullptr && !stages.overlap())
        batch->DropArrays();
      reply(request.As<R>());
      if (stage != nullptr) stage->Keep(std::move(request));
    }
  }
  // The same with request.done(outcome).
  template <class R, class Outcome>
  void AnswerMineWith(const Round& of, const Outcome& outcome, Stage* stage = nullptr) {
    AnswerMine<R>(
        of, [&](R& request) { request.done(outcome); }, stage);
  }
  // The same once the round is on every rank's disk; at once, if there is no journal.
  template <class R, class Outcome>
  void AnswerMineOnceRecorded(const Round& of, const Outcome& outcome, Stage* stage = nullptr) {
    AnswerMine<R>(
        of,
        [&](R& request) {
          const auto kept = std::make_shared<R>();  // with what the answer is charged to
          kept->done = std::move(request.done);
          if (log.on() && !request.caller.is_server())
            request.caller.times().NoteApplied(CallTimes::Clock::now(), collective.watchdog().waited());
          if constexpr (requires { request.answer_reservation; })
            kept->answer_reservation = std::move(request.answer_reservation);
          log.Answer([kept, outcome] {
            kept->done(outcome);
            *kept = {};
          });
        },
        stage);
  }

  // Makes room for the record of a round on batches, which has all arrays that came to this rank, if changes
  // are allowed now. RESOURCE_EXHAUSTED or UNAVAILABLE: the round may not change anything.
  Status MakeRoomForBatches(const Round& of);
  // REQUIRES: there is room. Records a round on batches, with the arrays that came to this rank. `steps`,
  // `with_state`: as RecordBatches has them (recorded_batches.h).
  void RecordBatchRound(RecordKind kind, const Round& of, std::span<const std::uint64_t> steps, Stage& stage,
                        bool with_state = false);

  // The ranks agree that each can record a round without a batch. Room is made before anything changes. If
  // the log is off, there is room.
  Status AgreeOnRoomToRecord(std::uint64_t more_bytes = 0);
  // REQUIRES: there is room. The round changed state, and is recorded so, as write() says, if the log is on.
  template <class Write>
  void Record(RecordKind kind, const Write& write) {
    log.NoteChange(round);
    if (log.on()) log.Append(round, static_cast<std::uint32_t>(kind), write());
  }

  Device& device;
  Collective& collective;
  const TableMaker& maker;
  ArrayPool& arrays;
  Tables& tables;
  PendingRequests& tickets;
  RoundLog& log;
  Checkpointing& checkpointing;
  TableWork work;
  Stages stages;
  std::uint64_t round = 0;                // the number of the one that is run
  CarriedBatches carried;                 // with its proposal
  std::vector<TableId> replaced = {};     // by a checkpoint's, in the last round
  RoundOutcome* round_outcome = nullptr;  // of each round; null: it is not asked for

 private:
  // Says which tables' shards are about to work, so that others give memory back.
  void UseScratch(const Round& of);
  // Tells the round's tables' counters what it was, and what they are now.
  void Count(const Round& of);

  std::vector<ScratchBudget::Batch> scratch_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_ROUND_CONTEXT_H_
