// What a round does, one function an operation. Every rank calls the same one with the same round.
//
// Each function answers those of the round's requests that came to this rank; lookups are answered when their results have
// come from the device, which may be after Run: rounds overlap.
// Thread-safety: the engine's thread only. The constructor and Run are collective.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/exchange.h"
#include "server/engine/agenda.h"
#include "server/engine/array_pool.h"
#include "server/engine/bag_travel.h"
#include "server/engine/batch_gather.h"
#include "server/engine/inbox.h"
#include "server/engine/stage.h"
#include "server/engine/tables.h"

namespace slotwise {

class Operations {
 public:
  Operations(Device& device, Collective& collective, const Exchanges& exchanges, const TravelOptions& travel,
             ArrayPool& arrays, Agenda& agenda, Tables& tables);

  // A request that this rank has announced.
  void Hold(TicketNumber ticket, Request request);

  // Waits until the next round can begin, and answers what that ended. Not collective.
  void MakeRoom() { stages_[(turn_ + 1) % stages_.size()]->Finish(); }

  // Runs the round's operation. It may leave work to the device, and lookups to be answered by a later call or Finish.
  void Run(const Round& round);

  // Waits for what Run left to the device, and answers its lookups.
  void Finish();

  // Whether Run may leave something. The same on every rank.
  bool RoundsOverlap() const { return stages_.size() > 1; }

  // Lets go of the arrays of a push that waits for another's round.
  void DropArraysOf(TicketNumber ticket);

  // Ends a request that needed no round.
  void Answer(const slotwise::Answer& answer);

  // Bytes of requests that have ended, or whose arrays were dropped, since the last call.
  std::uint64_t TakeReleasedBytes();

 private:
  void Connect(Exchange& exchange);
  // Answers what need not be waited for. Not collective.
  void FinishWhatIsDone();
  void RunNow(const Round& round);
  void Lookup(const Round& round, Table& table);  // lookup.cc
  void LookupOneByOne(const Round& round, Table& table);
  void Push(const Round& round, Table& table);  // push.cc
  void Update(Stage& stage, const Round& round, const BatchLayout& layout, Table& table,
              const StepScalars& scalars);
  void CreateTable(const Round& round);  // table_operations.cc
  void DropTable(const Round& round);
  void Summarize(const Round& round, Table& table);
  void SetLearningRate(const Round& round, Table& table);
  void Import(const Round& round, Table& table);  // row_operations.cc
  void Erase(const Round& round, Table& table);
  // What one rank does alone: the others have no part in the round.
  void ListKeys(const Round& round, Table& table);
  void ReadRows(const Round& round, Table& table);

  // OK if every rank's status is; else this rank's own, or that of a rank short of memory.
  Status Agree(const Status& mine);
  // Prepares `batch` on every rank, and gives its new keys rows on all of them or, with a reason, on none.
  Status PrepareAndInsert(Table& table, const BatchView& batch);
  // This rank's samples of the prepared batch, pooled over all ranks: there when the stage's stream is done.
  PooledValues PoolMine(Stage& stage, Table& table, const BatchLayout& layout, const BatchView& batch);

  // For the next round, once the last one there is finished.
  Stage& NextStage();

  bool IsMine(const Ticket& ticket) const { return ticket.rank == collective_.rank(); }
  // The held request of this kind. REQUIRES: it is held.
  template <class Kind>
  Kind& Held(TicketNumber ticket) {
    return std::get<Kind>(held_.at(ticket));
  }
  // Takes it off, to be answered.
  Request Take(TicketNumber ticket);
  // Answers all of the round's waiters on this rank: answer(request). Their arrays stay with the stage that uses them.
  template <class Kind, class Reply>
  void AnswerMine(const Round& round, Reply reply, Stage* stage = nullptr) {
    for (const Ticket& waiter : round.waiters) {
      if (!IsMine(waiter)) continue;
      Request request = Take(waiter.number);
      reply(std::get<Kind>(request));
      if (stage != nullptr) stage->Keep(std::move(request));
    }
  }

  Device& device_;
  Collective& collective_;
  ArrayPool& arrays_;
  Agenda& agenda_;
  Tables& tables_;
  BagTravel travel_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::size_t turn_ = 0;  // of the stage in use
  std::unordered_map<TicketNumber, Request> held_;
  std::uint64_t released_bytes_ = 0;
  std::uint32_t next_table_ = 1;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_H_
