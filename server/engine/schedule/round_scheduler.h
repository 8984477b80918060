// RoundScheduler: keeps the requests of all ranks, and decides on the next round.
//
// Every rank feeds its own scheduler the same headers in the same order, so all schedulers stay equal and
// decide alike: no rank leads. A scheduler is a plain state machine without threads, clocks or messages:
// headers go in, a decision comes out.
//
// Order: the request that became ready first is served first. A lookup is ready at once and takes along the
// other ready lookups of its table and mode, with or without weights like itself, as far as a round can hold
// them; the lookups of one call on several tables share a round. All waiting summaries of a table with a
// digest share a round, and so do those without. A step is ready when all parts of all its tables have come;
// it has a round of its own, because it is one optimizer update. A table that is due to be swept by its steps
// is swept before any of these.
// Cost: a decision takes time in proportion to the proposals in its headers, the requests that it answers or
// serves, the ranks, and the logarithm of the number of requests, steps and tables.
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

// The result of all ranks' headers, the same on every rank.
struct Decision {
  std::vector<Ticket> repeated;  // parts that came again: each waits with the first one, whose arrays count
  std::vector<EarlyAnswer> answers;  // answers to requests that need no round
  std::optional<StepKey> awaited;    // the incomplete step whose first part came first
  std::optional<Round> round;        // the next round, if there is one
  bool more_is_ready = false;        // another round could begin after `round`
  bool awaits_parts = false;         // some step waits for parts or its deadline
  std::uint64_t due_in_ms = 0;       // from the headers' time until the first deadline, if awaits_parts
  bool closing = false;              // some rank takes no new requests: the others should close too
  bool finished = false;             // no rank takes requests, and no work is left after `round`
};

struct RoundSchedulerLimits {
  std::uint64_t max_round_bytes = 0;
  std::uint64_t step_timeout_ms = 0;
};

class RoundScheduler {
 public:
  // `tables`, with the tables' shapes and the ledger, outlives the scheduler and is alike on every rank.
  RoundScheduler(const RoundSchedulerLimits& limits, const Tables& tables)
      : limits_(limits), tables_(tables) {}

  // Counts rounds from round + 1 on. REQUIRES: no round was decided.
  void BeginAfter(std::uint64_t round) { rounds_ = round; }

  // Takes in all ranks' headers, in rank order, and decides. A decision on a round that drops a table also
  // answers all requests that waited for the table. REQUIRES: the round of the last decision has been run.
  Decision Decide(std::span<const Header> headers);

  // The round of the last decision has replaced these tables by a checkpoint's. Returns the answers to all
  // requests that waited for them.
  std::vector<EarlyAnswer> TablesWereReplaced(std::span<const TableId> tables);

  // Returns whether the next round sweeps a table.
  bool sweeps_next() const { return tables_.DueBySteps() != TableId{0}; }
  // Returns whether the step waits for parts.
  bool Awaits(const StepKey& step) const { return incomplete_.Has(step); }
  // Returns how many rounds are ready, without lookups, because all lookups of a kind may share a round.
  std::size_t ready_rounds() const { return ready_.size_without_lookups(); }

  // Returns the bytes that the ready rounds will gather.
  std::uint64_t ready_bytes() const { return ready_bytes_; }
  // Returns how many steps wait for parts.
  std::size_t incomplete_steps() const { return incomplete_.size(); }

  // Calls f(ticket, what) for each request whose step waits for parts. what() returns a text on the missing
  // parts, which is made at most once a step. Takes time in proportion to the waiting requests.
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

  // Returns a hash of the scheduler's state, which is equal on every rank.
  std::uint64_t HashState() const;

 private:
  void TakeIn(Rank rank, const Proposal& proposal);
  void TakeInPart(const Ticket& ticket, const Proposal& proposal, const Table& table);
  // Answers a part of a step that the ledger knows as applied, or may have forgotten. Returns false if the
  // step is new.
  bool AnswerFromLedger(const Ticket& ticket, const Proposal& proposal, const Table& table);
  // Refuses a part that came before with another body.
  void RefuseOtherBody(const Ticket& ticket, const StepId& step);
  // Refuses a part of a step that came before with other tables.
  void RefuseOtherTables(const Ticket& ticket, const StepId& step);
  // Takes in a repeated part of a complete step that waits for its round.
  void TakeInAgain(const Ticket& ticket, const Proposal& proposal, Round& ready);
  void MakeReady(const StepKey& key, IncompleteStep complete);
  void RefuseTooLarge(const StepKey& key, IncompleteStep& step);
  Status TooLarge(const StepKey& key) const;
  void DropDueSteps();
  std::string MissingParts(const IncompleteStep& step) const;
  std::string WhatIsMissing(const StepKey& key, const IncompleteStep& step) const;
  std::optional<Round> NextRound();
  void AnswerAllOf(TableId table, const Status& why);
  // Answers all waiters with `why`, whose reason is `table`. The waiters for that table are answered first.
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
  Decision decision_;  // the decision being made
  std::uint64_t ready_bytes_ = 0;
  std::uint64_t rounds_ = 0;
  std::uint64_t now_ms_ = 0;
  bool closing_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_ROUND_SCHEDULER_H_
