// Recovery: brings back the state that a data folder has, on any number of ranks.
//
//     data/lineage                         names the state that the folder has, since it was first used
//     data/starts.json                     where each start began (starts.h)
//     data/checkpoints/<id>/...            (checkpoints.h)
//     data/journal/rank-<r>/*.journal      (journal_format.h)
//
// Every rank reads its own rows of the newest checkpoint, and then the later journals of all ranks. The ranks
// exchange only whether all have succeeded. All ranks see the same folder.
// Thread-safety: the engine's thread only. Calls are collective.
#ifndef SLOTWISE_SERVER_ENGINE_RECOVERY_H_
#define SLOTWISE_SERVER_ENGINE_RECOVERY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/durability/journal.h"
#include "server/durability/starts.h"
#include "server/engine/checkpointing.h"
#include "server/engine/durability_options.h"
#include "server/engine/operations/definition.h"
#include "server/engine/table_maker.h"
#include "server/engine/tables.h"
#include "slotwise/status.h"

namespace slotwise {

// The result of a recovery.
struct Recovered {
  CheckpointBase base;       // the start of further checkpoints
  std::uint64_t round = 0;   // the last round of the restored state
  std::uint64_t rounds = 0;  // how many of the rounds came from the journal
  std::uint64_t tables = 0;
};

class Recovery {
 public:
  // The arguments outlive it. From Run on, tables made by `maker` track their changes.
  Recovery(const DurabilityOptions& options, const OperationTable& operations, Device& device,
           Collective& collective, Tables& tables, TableMaker& maker);
  ~Recovery();

  Result<Recovered> Run();

  // Begins a journal that goes on where the last one ended. The journal's thread calls `on_durable` when more
  // rounds are on disk. REQUIRES: Run succeeded.
  Result<std::unique_ptr<Journal>> StartJournal(std::uint64_t instance, std::function<void()> on_durable);

  // Adds this start to the folder's list of starts, and returns the list. If the file cannot be read or
  // written, a warning is logged and the server starts all the same, but its clients may not hear of lost
  // steps. REQUIRES: Run succeeded.
  Starts RecordStart(std::uint64_t instance);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_RECOVERY_H_
