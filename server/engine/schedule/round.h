// Round: what the ranks do next, together. EarlyAnswer: how a request ends without a round.
//
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_ROUND_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_ROUND_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/engine/schedule/proposal.h"
#include "server/engine/tables.h"
#include "slotwise/batch.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

// One request, on whichever rank.
struct Ticket {
  Rank rank{0};
  TicketNumber number = 0;
  friend bool operator==(const Ticket&, const Ticket&) = default;
};

// One request's share of a round.
struct RoundPart {
  Ticket ticket;
  std::uint32_t samples = 0;
  std::uint32_t keys = 0;
  std::uint32_t part = 0;  // its place among the parts of its step
  bool weighted = false;
  std::uint32_t body = 0;   // of a push: a hash of the batch and its gradients
  bool joined = false;      // of a lookup: it came by LookupMany
  std::uint64_t bytes = 0;  // that it gathers
};

struct Round {
  std::uint64_t number = 0;  // rounds are counted from 1, alike on every rank
  Operation operation{};
  OperationClass operation_class = OperationClass::kAlone;
  bool of_table = false;
  bool drops_table = false;
  LookupMode mode = LookupMode::kTrain;
  std::optional<float> learning_rate = {};  // of a step, as a proposal's
  Payload payload;
  TableId table{0};  // 0, which no table is, unless of_table
  StepId step;       // of a step; its `part` means nothing here, and its epoch is the latest of its parts'
  std::vector<std::uint32_t> bodies;  // of a step, of its parts in part order
  std::vector<RoundPart>
      parts;  // in rank order; one rank's parts in the order they came, those of a push by part
  std::vector<Ticket> waiters;  // the requests that the round answers
  // What the round does on further tables: lookups, or the step's shares of them, in order of place. Of each,
  // the table, the parts, bodies and waiters count, a lookup's mode, and a push's learning rate.
  std::vector<Round> others;

  bool is_step() const { return operation_class == OperationClass::kStepPart; }

  // Calls f(Round&) for the round and then for each of `others`.
  template <class F>
  void ForEachTable(const F& f) const {
    f(*this);
    for (const Round& other : others) f(other);
  }

  // Whether some part has weights: the weights of the other parts are then all 1.
  bool weighted() const { return std::ranges::any_of(parts, &RoundPart::weighted); }
};

// The end of a request that gets no round of its own.
struct EarlyAnswer {
  Ticket ticket;
  Status status;             // OK: an earlier round applied the push's step ...
  AppliedStep applied = {};  // ... so
  bool for_another = false;  // the status is of another table of the push's step
};

// Returns the bytes that a batch gathers on a rank: keys, their weights, offsets, and one float for each
// element of each bag.
std::uint64_t RoundBytes(std::uint64_t samples, std::uint64_t keys, std::uint64_t slots, std::uint64_t dim,
                         bool weighted);

// Returns the bytes that a part of a step counts as: what it gathers on a rank, or what the rank needs for
// partial sums if all of the part's keys are the rank's and occur as often as takes most, whichever is more.
std::uint64_t StepBytes(std::uint64_t samples, std::uint64_t keys, std::uint64_t slots, std::uint64_t dim,
                        bool weighted);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_ROUND_H_
