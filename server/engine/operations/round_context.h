// RoundContext: the environment of an operation's round: this rank's tables, device and collectives, the
// round's requests that came to this rank, and the journal.
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
#include "server/engine/clock.h"
#include "server/engine/evicted_log.h"
#include "server/engine/operations/record_bytes.h"
#include "server/engine/operations/recorded_batches.h"
#include "server/engine/round_log.h"
#include "server/engine/round_outcome.h"
#include "server/engine/schedule/pending_requests.h"
#include "server/engine/schedule/round.h"
#include "server/engine/stage.h"
#include "server/engine/table_maker.h"
#include "server/engine/table_work.h"
#include "server/engine/tables.h"

namespace slotwise {

// Bounds the record of a round without a batch, in bytes: a table's options take the most.
inline constexpr std::uint64_t kSmallRecord = 8192;

struct OperationTraits;

struct RoundContext {
  // A batch may bring one rank new rows of up to this many times max_round_bytes.
  static constexpr std::uint64_t kRoundsOfNewRows = 8;

  // The arguments outlive it. `tickets` has every request of this rank that a round names. A round gathers at
  // most `max_round_bytes`. Rounds that change state go into `log`.
  RoundContext(Device& device, Collective& collective, const Exchanges& exchanges, const TableMaker& maker,
               std::uint64_t max_round_bytes, const DistributionOptions& distribution, ArrayPool& arrays,
               Tables& tables, PendingRequests& tickets, RoundLog& log, EvictedLog& evicted,
               Checkpointing& checkpointing, Clock& clock);

  // Called before and after a round of the operation; `with` may have batches of the round. Every rank runs
  // the same rounds. After End, the device may still have work of the round, and a later round, the stages or
  // the log may give its answers.
  void Begin(const OperationTraits& operation, const Round& of, const CarriedBatches& with = {});
  void End(const Round& of);

  bool IsMine(const Ticket& ticket) const { return ticket.rank == collective.rank(); }

  // Return the round's batch of a table's bags, or of its rows by key. REQUIRES: the table exists.
  TableBatch BagsOf(const Round& of) {
    Table& table = *tables.Get(of.table);
    return {of, table, table.info.options.slots, collective.size()};
  }
  TableBatch KeysOf(const Round& of) { return {of, *tables.Get(of.table), 1, collective.size()}; }

  // Calls reply(request) for each waiter on this rank. Their arrays stay with the stage that uses them.
  template <class R, class Reply>
  void AnswerMine(const Round& of, Reply reply, Stage* stage = nullptr) {
    for (const Ticket& waiter : of.waiters) {
      if (!IsMine(waiter)) continue;
      Request request = tickets.Take(waiter.number);
      // Without overlap all work is done by now: the arrays go first, so that an answered caller finds room.
      if (BatchPart* const batch = request.batch(); batch != nullptr && !stages.overlap())
        batch->DropArrays();
      reply(request.As<R>());
      if (stage != nullptr) stage->Keep(std::move(request));
    }
  }
  // Calls request.done(outcome) for each waiter.
  template <class R, class Outcome>
  void AnswerMineWith(const Round& of, const Outcome& outcome, Stage* stage = nullptr) {
    AnswerMine<R>(
        of, [&](R& request) { request.done(outcome); }, stage);
  }
  // Does the same once the round is on every rank's disk; at once if there is no journal.
  template <class R, class Outcome>
  void AnswerMineOnceRecorded(const Round& of, const Outcome& outcome, Stage* stage = nullptr) {
    AnswerMine<R>(
        of,
        [&](R& request) {
          const auto kept = std::make_shared<R>();  // with the charge for the answer
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

  // Reserves room for the record of a round on batches, with all arrays that came to this rank, if changes
  // are allowed now. RESOURCE_EXHAUSTED or UNAVAILABLE: the round may not change anything.
  Status MakeRoomForBatches(const Round& of, std::uint64_t bytes_of_evictions = 0);
  // Records a round on batches, with the arrays that came to this rank. `steps` and `beside` are as for
  // RecordBatches (recorded_batches.h). REQUIRES: MakeRoomForBatches was OK.
  void RecordBatchRound(RecordKind kind, const Round& of, std::span<const std::uint64_t> steps, Stage& stage,
                        const RecordedBeside& beside = {});

  // Reserves room for the record of a round without a batch, before anything changes, and lets the ranks
  // agree that each has room. If the log is off, there is room.
  Status AgreeOnRoomToRecord(std::uint64_t more_bytes = 0);
  // Notes that the round changed state; appends the record write() if the log is on. REQUIRES: reserved room.
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
  EvictedLog& evicted;
  Checkpointing& checkpointing;
  Clock& clock;
  TableWork work;
  Stages stages;
  std::uint64_t round = 0;                // the number of the current round
  CarriedBatches carried;                 // batches that came with the proposals
  std::vector<TableId> replaced = {};     // by a checkpoint's tables, in the last round
  RoundOutcome* round_outcome = nullptr;  // of each round; null: not wanted

 private:
  // Tells the scratch budget which tables' shards are about to work, so that others free memory.
  void UseScratch(const Round& of);
  // Updates the counters of the round's tables with the round and the tables' new state.
  void Count(const Round& of);

  std::vector<ScratchBudget::Batch> scratch_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_ROUND_CONTEXT_H_
