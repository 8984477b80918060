// ReplayContext: the tables and helpers for an operation when a recovery replays its rounds.
//
// The records of a round, of all ranks that recorded it, contain the whole batch. Each recovering rank
// applies that batch to its own shards, which keep only the keys that they own. So no data travels between
// ranks, and any number of ranks can replay the records of any other number. Limits on rows are not checked
// again: a batch that was applied once only needs enough memory.
// Thread-safety: the engine's thread only. Throws as Shard does.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_REPLAY_CONTEXT_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_REPLAY_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "kernels/shard.h"
#include "server/engine/checkpoint_loader.h"
#include "server/engine/operations/recorded_gather.h"
#include "server/engine/round_outcome.h"
#include "server/engine/table_maker.h"
#include "server/engine/tables.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

struct ReplayContext {
  // The arguments outlive it.
  ReplayContext(Device& device, Tables& all_tables, const TableMaker& table_maker,
                CheckpointLoader& of_checkpoints)
      : tables(all_tables), maker(table_maker), loader(of_checkpoints), gather(device, all_tables) {}

  Tables& tables;
  const TableMaker& maker;
  CheckpointLoader& loader;
  RecordedGather gather;
  std::size_t reads_of = 0;               // the rank whose record is being read
  EvictedSums evicted;                    // by all rounds, of this rank's rows
  EvictedSums recorded_evicted;           // the sums that the records have, of all ranks' rows
  RoundOutcome* round_outcome = nullptr;  // null: not wanted
  bool loaded_a_checkpoint = false;       // a round has replaced tables by a checkpoint's
  bool rows_were_altered = false;         // a round has altered rows, and no changes say so
};

inline Status DoesNotFollow(const std::string& what) {
  return DataLoss("the journal does not follow the state that it is to be applied to: " + what);
}

// DATA_LOSS: a record names a table that does not exist.
inline Status CheckThereIs(const Tables& tables, TableId id) {
  if (tables.Get(id) != nullptr) return {};
  return DoesNotFollow("there is no table " + std::to_string(Value(id)));
}

// Checks that all ranks' records are equal.
template <class Record>
Status CheckAlike(std::span<const Record> of_ranks) {
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
    if (!(of_ranks[rank] == of_ranks.front()))
      return DataLoss("ranks 0 and " + std::to_string(rank) + " have recorded different rounds");
  }
  return {};
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_REPLAY_CONTEXT_H_
