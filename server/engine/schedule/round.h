// Round: one operation that all ranks do together. EarlyAnswer: the answer to a request without a round.
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

// Identifies a request over all ranks.
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
  std::uint32_t body = 0;   // of a push: the payload hash of batch and gradients
  bool joined = false;      // of a lookup: sent by LookupMany
  std::uint64_t bytes = 0;  // gathered for it
};

struct Round {
  std::uint64_t number = 0;  // counts from 1, alike on every rank
  Operation operation{};
  OperationClass operation_class = OperationClass::kAlone;
  bool of_table = false;
  bool drops_table = false;
  LookupMode mode = LookupMode::kTrain;
  std::optional<float> learning_rate = {};  // of a step, as in Proposal
  Payload payload;
  TableId table{0};  // 0, no table's id, unless of_table
  StepId step;       // of a step; `part` means nothing here, and `epoch` is the latest of its parts
  std::vector<std::uint32_t> bodies;  // of a step's parts, in part order
  std::vector<RoundPart> parts;       // in rank order; those of one rank as they came, or by part for a push
  std::vector<Ticket> waiters;        // the requests that the round answers
  // The round's work on further tables: lookups, or the step's shares, in order of place. Of each of them,
  // only table, parts, bodies and waiters count, and a lookup's mode or a push's learning rate.
  std::vector<Round> others;

  bool is_step() const { return operation_class == OperationClass::kStepPart; }

  // Calls f(Round&) for the round and then for each of `others`.
  template <class F>
  void ForEachTable(const F& f) const {
    f(*this);
    for (const Round& other : others) f(other);
  }

  // Returns whether some part has weights; if so, parts without weights count as having weights of 1.
  bool weighted() const { return std::ranges::any_of(parts, &RoundPart::weighted); }
};

// The answer to a request that gets no round of its own.
struct EarlyAnswer {
  Ticket ticket;
  Status status;             // OK: an earlier round applied the push's step
  AppliedStep applied = {};  // the outcome of that round, if OK
  bool for_another = false;  // the reason is another table of the push's step
};

// Returns the bytes that a batch gathers on a rank: keys, their weights, offsets, and one float for each
// element of each bag.
std::uint64_t RoundBytes(std::uint64_t samples, std::uint64_t keys, std::uint64_t slots, std::uint64_t dim,
                         bool weighted);

// Returns the bytes that a part of a step counts as: the larger of the bytes that it gathers on a rank, and
// the bytes that a rank which owns all of the part's keys needs for partial sums, for the worst counts of the
// keys.
std::uint64_t StepBytes(std::uint64_t samples, std::uint64_t keys, std::uint64_t slots, std::uint64_t dim,
                        bool weighted);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_ROUND_H_
