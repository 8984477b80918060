// ReplayRound: applies a journal's round again.
// Thread-safety: the engine's thread only. Throws as Shard does.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_REPLAY_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_REPLAY_H_

#include <cstddef>
#include <span>

#include "server/engine/operations/definition.h"
#include "server/engine/operations/record_bytes.h"
#include "server/engine/operations/replay_context.h"
#include "slotwise/status.h"

namespace slotwise {

// A rank's record of a round. The body begins at a multiple of kRecordAlign.
struct RecordOfRank {
  RecordKind kind{};
  std::span<const std::byte> body;
};

// Applies a round from the records of all ranks that recorded it, in rank order. After an error,
// context.reads_of is the rank whose record has the error. DATA_LOSS: the records cannot follow on the state,
// or do not fit together. RESOURCE_EXHAUSTED: no memory for the rows.
Status ReplayRound(const OperationTable& operations, ReplayContext& context,
                   std::span<const RecordOfRank> of_ranks);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_REPLAY_H_
