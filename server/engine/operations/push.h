// Push: gathers every part of a step, with its gradients; each rank updates the rows that it owns, once. A
// step of several tables is prepared on all of them before any of them changes.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_PUSH_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_PUSH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "server/engine/operations/record_bytes.h"
#include "server/engine/operations/recorded_batches.h"
#include "server/engine/schedule/request.h"
#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

// The last step of a table that a server acknowledged to a client, according to the client, which may name
// anything. Instance 0: none.
struct Acknowledged {
  std::uint64_t instance = 0;  // the server instance that acknowledged it
  std::uint64_t step = 0;      // the table's
  friend bool operator==(const Acknowledged&, const Acknowledged&) = default;
};

struct PushRequest {
  static constexpr Operation kOperation{1};
  static constexpr OperationClass kClass = OperationClass::kStepPart;

  TableId table{0};
  StepId step;
  BatchPart batch;  // its values are the gradients: finite, float[samples · slots · dim]
  std::function<void(Result<AppliedStep>)> done;
  // The payload hash of the batch and its values (semantics.md), which differs for different bodies, except
  // by rare chance.
  std::uint32_t body = 0;
  std::optional<float> learning_rate = {};  // of this step alone; none: the table's own
  // The version of the rows from which the gradients come, according to the client, which may name anything;
  // generation 0: none. It is only used for counters.
  TableVersion looked_up = {};
  Acknowledged acknowledged = {};
  SquareSum gradients = {};  // the squares of a sample of the gradients
  Reservation answer_reservation = {};
  Caller caller = {};
  std::function<void(const Status&)> refused_with_others = nullptr;
};

struct ReplayContext;
struct RoundContext;

namespace operations {

struct Push {
  using Request = PushRequest;
  using Record = RecordedBatches;
  static constexpr RecordKind kAtTablesRates{1};
  static constexpr RecordKind kAtOwnRates{9};      // the step has its own learning rate for some table
  static constexpr RecordKind kWithEvictions{12};  // rows were evicted; the shares say their rates
  static constexpr std::array kRecords{kAtTablesRates, kAtOwnRates, kWithEvictions};
  static constexpr bool kOverlaps = true;

  static void Run(RoundContext& context, const Round& round);
  static Result<Record> Read(RecordKind kind, Rank rank, std::span<const std::byte> body);
  static Status Replay(ReplayContext& context, std::span<const Record> of_ranks);
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_PUSH_H_
