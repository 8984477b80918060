// Requests about the whole state: to save or load a checkpoint, and the ranks' reports on checkpoints.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_CHECKPOINT_REQUESTS_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_CHECKPOINT_REQUESTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/engine/schedule/request.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

// A checkpoint that exists.
struct SavedCheckpoint {
  std::string id;
  bool delta = false;
  std::uint64_t round = 0;  // the checkpoint has the state after it
  std::uint64_t rows = 0;   // written to its files
  std::uint64_t bytes = 0;  // of its files
};

struct SaveCheckpointRequest {
  static constexpr Operation kOperation{10};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  bool delta = false;                        // rows changed since the newest checkpoint if known, else all
  DataType value_type = DataType::kFloat32;  // of rows; optimizer state stays float32
  std::function<void(Result<SavedCheckpoint>)> done;
  Caller caller = {};

  // The proposal's payload.
  struct Asked {
    bool delta = false;
    DataType value_type = DataType::kFloat32;
  };
  Payload payload() const { return Payload(Asked{delta, value_type}); }
};

// Returns the caller's error for a checkpoint that cannot be loaded. It is never DATA_LOSS, which means that
// acknowledged steps were lost, nor UNAVAILABLE, after which callers try again.
inline Status RefusalToLoad(const Status& why) {
  if (why.code() == StatusCode::kDataLoss) return FailedPrecondition(why.message());
  return why.code() == StatusCode::kUnavailable ? Status(StatusCode::kInternal, why.message()) : why;
}

// Replaces all tables and the ledger by a checkpoint's; or only some tables by the checkpoint's tables of the
// same names, and keeps the ledger. The answer is a new checkpoint of the loaded state, once it exists.
struct LoadCheckpointRequest {
  static constexpr Operation kOperation{12};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  std::string id;
  std::vector<TableId> tables = {};  // of the checkpoint, ascending; empty: all
  std::function<void(Result<SavedCheckpoint>)> done;
  Caller caller = {};
  std::optional<RowType> rows_as = {};  // none: as the checkpoint's tables kept them

  // The proposal's payload.
  struct Asked {
    bool other_rows = false;
    RowType as = {};

    std::optional<RowType> rows_as() const { return other_rows ? std::optional(as) : std::nullopt; }
  };
  Payload payload() const { return Payload(Asked{rows_as.has_value(), rows_as.value_or(RowType())}); }
};

// How far a rank has come with a checkpoint.
enum class CheckpointEvent : std::uint8_t {
  kWritten,    // a rank has written its files
  kPublished,  // from rank 0: the checkpoint exists
  kVerified,   // from rank 0: all of it was read back
  kCompacted,  // from rank 0: a chain was folded into a base
  kDamaged,    // from rank 0: while folding, it found damage in the newest checkpoint's chain
};

// A rank's report to the others; clients do not send it.
struct CheckpointEventRequest {
  static constexpr Operation kOperation{11};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  CheckpointEvent event = CheckpointEvent::kWritten;
  bool failed = false;
  std::function<void(Status)> done;
  Caller caller = {};  // the server

  struct Said {
    CheckpointEvent event = CheckpointEvent::kWritten;
    bool failed = false;
  };
  Payload payload() const { return Payload(Said{event, failed}); }
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_CHECKPOINT_REQUESTS_H_
