// Requests for the state as a whole: to save it, to load it, and what ranks tell each other of that.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_CHECKPOINT_REQUESTS_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_CHECKPOINT_REQUESTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "server/engine/schedule/request.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

// A checkpoint that exists.
struct SavedCheckpoint {
  std::string id;
  bool delta = false;
  std::uint64_t round = 0;  // it is the state after this one
  std::uint64_t rows = 0;   // that it has written
  std::uint64_t bytes = 0;  // of its files
};

struct SaveCheckpointRequest {
  static constexpr Operation kOperation{10};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  bool delta = false;  // what changed since the newest checkpoint, if that is known; else all
  DataType value_type = DataType::kFloat32;  // of rows; optimizers' state is float32
  std::function<void(Result<SavedCheckpoint>)> done;
  Caller caller = {};

  // What all ranks are told.
  struct Asked {
    bool delta = false;
    DataType value_type = DataType::kFloat32;
  };
  Payload payload() const { return Payload(Asked{delta, value_type}); }
};

// Returns what a caller hears who asked for a checkpoint that cannot be loaded. DATA_LOSS would be of steps
// that the server had acknowledged, and after UNAVAILABLE callers try again.
inline Status RefusalToLoad(const Status& why) {
  if (why.code() == StatusCode::kDataLoss) return FailedPrecondition(why.message());
  return why.code() == StatusCode::kUnavailable ? Status(StatusCode::kInternal, why.message()) : why;
}

// Asks for the tables, and steps' names, of a checkpoint in the place of those that there are; or for some
// of its tables in the place of those of their names, and steps' names stay. Answered once a new checkpoint
// has them, which is what it returns.
struct LoadCheckpointRequest {
  static constexpr Operation kOperation{12};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  std::string id;
  std::vector<TableId> tables = {};  // of the checkpoint, ascending; empty: all
  std::function<void(Result<SavedCheckpoint>)> done;
  Caller caller = {};
};

// How far a rank has come with a checkpoint.
enum class CheckpointEvent : std::uint8_t {
  kWritten,    // its own files, each rank
  kPublished,  // the checkpoint exists; rank 0
  kVerified,   // all of it was read back; rank 0
  kCompacted,  // a chain was folded into a base; rank 0
  kDamaged,    // what the newest checkpoint builds on was found damaged as it was folded; rank 0
};

// A rank tells the others; no client asks.
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
