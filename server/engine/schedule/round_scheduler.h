// RoundScheduler: what all ranks together have to do, and what comes next.
//
// Every rank feeds its own scheduler the same headers in the same order, so all schedulers stay equal and
// decide alike: no rank leads. A scheduler is a plain state machine without threads, clocks or messages:
// headers go in, a decision comes out.
//
// Order: the request that became ready first is served first. A lookup is ready at once and takes along the
// other ready lookups of its table and mode, with or without weights as it is, as far as a round can hold
// them; the lookups of one call of several tables share a round. So do all summaries of a table that wait,
// those with a digest and those without. A step is ready when all its parts are there, of all its tables; it
// has a round of its own, because it is one optimizer update. Cost: a decision takes time by the
// proposals in its headers, the requests that it answers or serves and the ranks, and by the logarithm of
// how many requests, steps and tables there are.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_ROUND_SCHEDULER_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_ROUND_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/schedule/incomplete_steps.h"
#include "server/engine/schedule/proposal.h"
#include "server/engine/schedule/ready_rounds.h"
#include "server/engine/schedule/round.h"
#include "server/engine/tables.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

// What follows from the headers of all ranks: the same on every rank.
struct Decision {
  std::vector<Ticket> repeated;  // parts that came again: each waits with the first, whose arrays are used
  std::vector<EarlyAnswer> answers;  // requests that end without a round
  std::optional<StepKey> awaited;    // of the steps that wait for parts, the one whose first part came first
  std::optional<Round> round;        // what the ranks do next
  bool more_is_ready = false;        // behind `round`, another round could begin
  bool awaits_parts = false;         // some step waits for parts, or for its deadline
  std::uint64_t due_in_ms = 0;       // from the time of the headers until the first deadline, if awaits_parts
  bool closing = false;              // some rank takes no new requests: the others should close too
  bool finished = false;             // no rank takes requests, and nothing is left to do behind `round`
};

struct RoundSchedulerLimits {
  std::uint64_t max_round_bytes = 0;
  std::uint64_t step_timeout_ms = 0;
};

class RoundScheduler {
 public:
  // `tables` outlives the scheduler, and is alike on every rank: the scheduler reads tables' shapes and
  // ledgers there.
  RoundScheduler(const RoundSchedulerLimits& limits, const Tables& tables)
      : limits_(limits), tables_(tables) {}

  // Rounds are counted from this one on. REQUIRES: no round was decided.
  void BeginAfter(std::uint64_t round) { rounds_ = round; }

  // Takes in all ranks' headers, in rank order. REQUIRES: the round of the last decision has been run. A
  // round that drops a table is decided together with the answers to all that waited for the table.
  Decision Decide(std::span<const Header> headers);

  // The round of the last decision has put a checkpoint's tables in the place of these. Returns the answers
  // to all that waited for them.
  std::vector<EarlyAnswer> TablesWereReplaced(std::span<const TableId> tables);

  // Returns whether parts of the step wait for others.
  bool Awaits(const StepKey& step) const { return incomplete_.Has(step); }
  // Returns how many rounds are ready, of which lookups are none: all lookups of a kind may share one.
  std::size_t ready_rounds() const { return ready_.size_without_lookups(); }

  // Returns the bytes that the ready rounds will gather.
  std::uint64_t ready_bytes() const { return ready_bytes_; }
  // Steps that wait for parts.
  std::size_t incomplete_steps() const { return incomplete_.size(); }

  // Calls f(ticket, what) for each request whose step waits for parts: what() says which have not come, and
  // looks for them once a step. Costs time by how many wait.
  template <class F>
  void ForEachThatAwaits(const F& f) const {
    incomplete_.ForEach([&](const StepKey& key, const IncompleteStep& step) {
      std::string text;
      const auto what = [&]() -> const std::string& {
        if (text.empty()) text = WhatIsMissing(key, step);
        return text;
      };
      for (const auto& [place, share] : step.shares) {
        for (const Ticket& waiter : share.waiters) f(waiter, what);
      }
    });
  }

  // A hash of all that the scheduler knows: equal on every rank.
  std::uint64_t HashState() const;

 private:
  void TakeIn(Rank rank, const Proposal& proposal);
  void TakeInPart(const Ticket& ticket, const Proposal& proposal, const Table& table);
  // Answers a part of a step that was applied, or whose step the ledger cannot tell from an applied one.
  // Returns false if the step is new.
  bool AnswerFromLedger(const Ticket& ticket, const Proposal& proposal, const Table& table);
  // Answers a part that came before with another body.
  void RefuseOtherBody(const Ticket& ticket, const StepId& step);
  // Answers a part of a step of which another table came before.
  void RefuseOtherTables(const Ticket& ticket, const StepId& step);
  // Takes in a part of a step that waits for its round.
  void TakeInAgain(const Ticket& ticket, const Proposal& proposal, Round& ready);
  void MakeReady(const StepKey& key, IncompleteStep complete);
  void RefuseTooLarge(const StepKey& key, IncompleteStep& step);
  Status TooLarge(const StepKey& key) const;
  void DropDueSteps();
  std::string MissingParts(const IncompleteStep& step) const;
  std::string WhatIsMissing(const StepKey& key, const IncompleteStep& step) const;
  std::optional<Round> NextRound();
  void AnswerAllOf(TableId table, const Status& why);
  // Answers those who wait with a request of `table`, whose own reason it is: they are the first.
  using Waiters = std::vector<std::pair<TableId, const std::vector<Ticket>*>>;  // by their requests' tables
  void ReplyToWaiters(TableId table, const Waiters& waiters, const Status& why);
  static std::uint64_t BytesOf(const Table& table, const RoundPart& part);
  static std::uint64_t BytesIn(const Round& round);
  void Reply(const Ticket& ticket, Status status, const AppliedStep& applied = {});
  void ReplyToAll(const std::vector<Ticket>& tickets, const Status& status);
  void ReplyToAll(const IncompleteStep& step, const Status& status);

  const RoundSchedulerLimits limits_;
  const Tables& tables_;
  ReadyRounds ready_;
  IncompleteSteps incomplete_;
  Decision decision_;  // the one that is being made
  std::uint64_t ready_bytes_ = 0;
  std::uint64_t rounds_ = 0;
  std::uint64_t now_ms_ = 0;
  bool closing_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_ROUND_SCHEDULER_H_
