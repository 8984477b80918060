// Recovery: brings back the state that a data folder has, on any number of ranks.
//
//     data/lineage                         names the state that the folder has, since the server first used it
//     data/checkpoints/<id>/...            (checkpoints.h)
//     data/journal/rank-<r>/*.journal      (journal_format.h)
//
// Every rank reads what is its own of the newest checkpoint, and every rank's journal behind it; nothing travels
// between ranks but whether all have succeeded. All ranks see the same folder.
// Thread-safety: the engine's thread only. Calls are collective.
#ifndef SLOTWISE_SERVER_ENGINE_RECOVERY_H_
#define SLOTWISE_SERVER_ENGINE_RECOVERY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/durability/file_system.h"
#include "server/durability/journal.h"
#include "server/engine/table_maker.h"
#include "server/engine/tables.h"
#include "slotwise/status.h"

namespace slotwise {

// What an acknowledged step survives.
enum class DurabilityMode : std::uint8_t {
  kNone,      // nothing but the server's own life, and what a checkpoint was asked for
  kInterval,  // a crash loses the last seconds at most
  kSync,      // a crash loses nothing
};

struct DurabilityOptions {
  DurabilityMode mode = DurabilityMode::kNone;
  std::string folder;  // empty: nothing is kept
  FileSystem* files = &SystemFiles();
  // Is told why the journal cannot go on, on the journal's thread. The process has to end: nobody knows what is
  // on disk.
  std::function<void(const std::string& why)> on_failure = {};
};

// What was brought back.
struct Recovered {
  std::uint64_t lineage = 0;  // of the folder
  std::uint64_t round = 0;    // the last that counts
  std::uint64_t rounds = 0;   // of them from the journal
  std::uint64_t tables = 0;
};

class Recovery {
 public:
  // The arguments outlive it.
  Recovery(const DurabilityOptions& options, Device& device, Collective& collective, Tables& tables,
           const TableMaker& maker);
  ~Recovery();

  Result<Recovered> Run();

  // REQUIRES: Run succeeded. Begins a journal that goes on where the last one ended. `on_durable` is called on
  // the journal's thread when more is on disk.
  Result<std::unique_ptr<Journal>> StartJournal(std::uint64_t incarnation, std::function<void()> on_durable);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_RECOVERY_H_
