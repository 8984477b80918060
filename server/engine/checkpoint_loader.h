// CheckpointLoader: makes tables of a checkpoint's files: those of a rank, whatever number of ranks wrote
// them.
//
// A server that starts loads the newest checkpoint, as the state that its folder has. A server that runs, or
// a journal of one that did, loads whichever was asked for: its tables' states are then others than those
// that had their generations before, so they get new ones.
// Thread-safety: the engine's thread only. Nothing here is collective: every rank reads the files that it
// needs.
#ifndef SLOTWISE_SERVER_ENGINE_CHECKPOINT_LOADER_H_
#define SLOTWISE_SERVER_ENGINE_CHECKPOINT_LOADER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/durability/checkpoints.h"
#include "server/durability/threads.h"
#include "server/engine/key_batch.h"
#include "server/engine/table_maker.h"
#include "server/engine/tables.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

class CheckpointLoader {
 public:
  // The references outlive it. It reads on a thread of `threads`.
  CheckpointLoader(Checkpoints checkpoints, Threads& threads, Device& device, const Collective& collective,
                   const TableMaker& maker, const Tables& tables);

  const Checkpoints& checkpoints() const { return checkpoints_; }

  // Reads what a chain's last checkpoint has. `generations`: what tables' new generations are drawn from;
  // none: they keep theirs. `only`: the tables that are read; empty: all. FAILED_PRECONDITION: a file is
  // damaged or missing, or the checkpoint lacks a table. RESOURCE_EXHAUSTED: no memory for the rows, or more
  // tables than there may be. Others are the FileSystem's.
  Result<SavedTables> Load(const Chain& chain, std::optional<std::uint64_t> generations = std::nullopt,
                           std::span<const TableId> only = {});

 private:
  Result<SavedTables> LoadChosen(const Chain& chain, std::optional<std::uint64_t> generations,
                                 std::span<const TableId> only);
  // Returns what a checkpoint has of the tables, unless more would be there then than may be.
  Result<std::vector<const TableEntry*>> Choose(const Manifest& checkpoint,
                                                std::span<const TableId> only) const;
  Status LoadRows(const Chain& chain, const TableEntry& entry, Table& table);

  const Checkpoints checkpoints_;
  Threads& threads_;
  KeyBatch erased_;
  const std::uint32_t rank_;
  const int ranks_;
  const TableMaker& maker_;
  const Tables& tables_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CHECKPOINT_LOADER_H_
