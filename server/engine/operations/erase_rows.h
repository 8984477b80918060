// EraseRows: erases the rows of some keys, each on the rank that owns it.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_ERASE_ROWS_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_ERASE_ROWS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "server/engine/operations/record_bytes.h"
#include "server/engine/operations/recorded_batches.h"
#include "server/engine/schedule/request.h"
#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

// The batch has one key a bag: bag b is batch.keys[b].
struct EraseRequest {
  static constexpr Operation kOperation{7};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  TableId table{0};
  BatchPart batch;
  std::function<void(Result<std::uint64_t>)> done;  // the number of keys that had a row
  Caller caller = {};

  BagShape BagsIn(const TableOptions& /*of*/) const { return {1, 0}; }
};

struct ReplayContext;
struct RoundContext;

namespace operations {

struct EraseRows {
  using Request = EraseRequest;
  using Record = RecordedBatches;
  static constexpr std::array kRecords{RecordKind{4}};

  static void Run(RoundContext& context, const Round& round);
  static Result<Record> Read(RecordKind kind, Rank rank, std::span<const std::byte> body);
  static Status Replay(ReplayContext& context, std::span<const Record> of_ranks);
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_ERASE_ROWS_H_
