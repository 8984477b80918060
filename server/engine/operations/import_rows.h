// ImportRows: writes rows with given values, each on the rank that owns it.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_IMPORT_ROWS_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_IMPORT_ROWS_H_

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
struct ImportRequest {
  static constexpr Operation kOperation{6};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  TableId table{0};
  BatchPart batch;  // its values are finite rows: float[keys][dim], or whole records with_state
  bool with_state = false;
  std::uint64_t table_steps = 0;  // raises the table's count of applied steps to this
  // FAILED_PRECONDITION (kTableChanged): the records have scores, or none, unlike the table's since it was
  // altered. Other errors are a push's.
  std::function<void(Status)> done;
  Caller caller = {};
  // The table's generation as the caller knows it; 0: any. UNAVAILABLE: a checkpoint was loaded since.
  std::uint64_t generation = 0;

  // The proposal's payload.
  struct Asked {
    std::uint64_t table_steps = 0;
    std::uint32_t with_state = 0;
    std::uint32_t columns = 0;  // of a row; 0 without rows
  };
  // Returns how many numbers a row has; 0 without rows.
  std::uint32_t columns() const {
    return batch.samples == 0 ? 0 : static_cast<std::uint32_t>(batch.values.size() / batch.samples);
  }
  Payload payload() const { return Payload(Asked{table_steps, with_state ? 1U : 0U, columns()}); }
  BagShape BagsIn(const TableOptions& /*of*/) const { return {1, columns()}; }
};

struct ReplayContext;
struct RoundContext;

namespace operations {

struct ImportRows {
  using Request = ImportRequest;
  using Record = RecordedBatches;
  static constexpr RecordKind kPlain{3};
  static constexpr RecordKind kWithEvictions{14};
  static constexpr std::array kRecords{kPlain, kWithEvictions};

  static void Run(RoundContext& context, const Round& round);
  static Result<Record> Read(RecordKind kind, Rank rank, std::span<const std::byte> body);
  static Status Replay(ReplayContext& context, std::span<const Record> of_ranks);
  // Overwrites the rows of the batch's keys, with `columns` numbers each.
  static void Apply(Table& table, InsertedBatch batch, const float* values, std::uint32_t columns,
                    std::uint64_t steps);
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_IMPORT_ROWS_H_
