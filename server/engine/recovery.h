// Recovery: brings back the state that a data folder has, on any number of ranks.
//
//     data/lineage                         names the state that the folder has, since it was first used
//     data/starts.json                     where each start began (starts.h)
//     data/checkpoints/<id>/...            (checkpoints.h)
//     data/journal/rank-<r>/*.journal      (journal_format.h)
//
// Every rank reads what is its own of the newest checkpoint, and every rank's journal behind it; nothing
// travels between ranks but whether all have succeeded. All ranks see the same folder.
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

// What was brought back.
struct Recovered {
  CheckpointBase base;       // of further checkpoints
  std::uint64_t round = 0;   // the last that counts
  std::uint64_t rounds = 0;  // of them from the journal
  std::uint64_t tables = 0;
};

class Recovery {
 public:
  // The arguments outlive it. What `maker` makes from Run on remembers what changes.
  Recovery(const DurabilityOptions& options, const OperationTable& operations, Device& device,
           Collective& collective, Tables& tables, TableMaker& maker);
  ~Recovery();

  Result<Recovered> Run();

  // REQUIRES: Run succeeded. Begins a journal that goes on where the last one ended. `on_durable` is called
  // on the journal's thread when more is on disk.
  Result<std::unique_ptr<Journal>> StartJournal(std::uint64_t instance, std::function<void()> on_durable);

  // REQUIRES: Run succeeded. Returns the folder's starts with this one, which the folder then has too. If the
  // file cannot be read or written, the log warns, and the server starts all the same: its clients may then
  // not hear of a loss.
  Starts RecordStart(std::uint64_t instance);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_RECOVERY_H_
