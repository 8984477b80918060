// CheckpointLoader: makes a rank's tables from a checkpoint's files, whatever number of ranks wrote them.
//
// A server that starts loads the newest checkpoint of its folder, and tables keep their generations. A
// LoadCheckpoint call, or its replay from a journal, loads any checkpoint: the tables' states then differ
// from those that had their generations before, so they get new generations.
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
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

class CheckpointLoader {
 public:
  // The references outlive it. It reads on a thread of `threads`.
  CheckpointLoader(Checkpoints checkpoints, Threads& threads, Device& device, const Collective& collective,
                   const TableMaker& maker, const Tables& tables);

  const Checkpoints& checkpoints() const { return checkpoints_; }

  // Reads the state of a chain's last checkpoint. `generations`: the number from which the tables' new
  // generations are drawn; none: they keep theirs. `only`: the tables to read; empty: all. `rows_as`: what
  // the tables keep rows as; none: what the checkpoint's kept them as. FAILED_PRECONDITION: a file is damaged
  // or missing, or the checkpoint lacks a table. INVALID_ARGUMENT: a table cannot keep rows so.
  // RESOURCE_EXHAUSTED: no memory for the rows, or more tables than allowed. Other errors are the
  // FileSystem's.
  Result<SavedTables> Load(const Chain& chain, std::optional<std::uint64_t> generations = std::nullopt,
                           std::span<const TableId> only = {},
                           const std::optional<RowType>& rows_as = std::nullopt);

 private:
  Result<SavedTables> LoadChosen(const Chain& chain, std::optional<std::uint64_t> generations,
                                 std::span<const TableId> only, const std::optional<RowType>& rows_as);
  // Returns the checkpoint's entries of the tables in `only`, or of all tables. Fails if the server would get
  // more tables than allowed.
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
