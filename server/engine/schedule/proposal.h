// Proposal: the description of a request that a rank sends to the others. Header: a rank's proposals before
// one decision, of new requests in its request queue. Both have only sizes and names; the arrays travel when
// the scheduler has decided on the request's round, except for small batches that the header carries.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_PROPOSAL_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_PROPOSAL_H_

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "server/engine/schedule/operation.h"
#include "slotwise/batch.h"
#include "slotwise/types.h"

namespace slotwise {

// A request's number on the rank that received it.
using TicketNumber = std::uint64_t;

// The name of a step, the same on all ranks that receive its parts. A step of several tables has table 0,
// which is no table's id.
struct StepKey {
  TableId table{0};
  std::uint64_t session = 0;
  std::uint64_t number = 0;
  auto operator<=>(const StepKey&) const = default;
};

inline StepKey KeyOf(TableId table, const StepId& step) {
  return {step.tables > 1 ? TableId{0} : table, step.session, step.number};
}

struct Proposal {
  Operation operation{};
  OperationClass operation_class = OperationClass::kAlone;
  bool of_table = false;                 // whether it names a table
  bool drops_table = false;              // all requests that wait for the table are answered
  LookupMode mode = LookupMode::kTrain;  // lookups
  bool weighted = false;                 // lookups and pushes
  bool joined = false;                   // lookups: sent by LookupMany, whose lookups may share a round
  bool carried = false;                  // lookups: the header has the batch (carried_batches.h) ...
  std::uint16_t carried_at = 0;          // ... at this byte
  TableId table{0};                      // 0, no table's id, unless of_table
  std::uint32_t samples = 0;             // of a request with a batch
  std::uint32_t keys = 0;
  std::optional<float> learning_rate = {};  // parts of steps: the step's own rate
  StepId step;                              // parts of steps
  std::uint32_t body = 0;                   // parts of steps: a hash of the batch and its gradients
  Payload payload;
  TicketNumber ticket = 0;
};

// Headers have a fixed size, so that one all-gather of known size exchanges them.
struct Header {
  static constexpr std::size_t kMost = 32;  // more requests wait for the next header

  std::uint64_t now_ms = 0;   // the rank's clock; only rank 0's counts
  std::uint32_t count = 0;    // of `proposals`
  bool closed = false;        // this rank takes no new requests; with count = 0, it has none left to propose
  std::uint64_t durable = 0;  // the last recorded round that is on this rank's disk
  std::uint32_t carried_bytes = 0;
  std::array<Proposal, kMost> proposals;  // small batches lie behind the first `count`
};

static_assert(std::is_trivially_copyable_v<Header>, "headers are exchanged as bytes");

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_PROPOSAL_H_
