// Compaction: folds a chain of checkpoints into one base, by their files alone.
//
// The new base has the state, the ranks and the owners of buckets of the chain's last checkpoint, and equals
// byte for byte the files of a base that had been written instead of it. Where the links' values have
// different types, the base's values are float32.
#ifndef SLOTWISE_SERVER_DURABILITY_COMPACTION_H_
#define SLOTWISE_SERVER_DURABILITY_COMPACTION_H_

#include <cstdint>
#include <string>

#include "server/durability/block_file.h"
#include "server/durability/checkpoints.h"
#include "server/durability/file_system.h"
#include "server/durability/manifest.h"
#include "slotwise/status.h"

namespace slotwise {

struct CompactOptions {
  std::string id;              // the new base's
  std::string server_version;  // that of the program which folds
  // Rows that are in memory at a time, but never less than one bucket's. Beside them a block of each file of
  // one old rank's table is.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  std::uint64_t block_bytes = kBlockBytes;
};

// Writes and publishes the base, and returns its manifest; its `created` is that of the chain's last, because
// it is the same state. `folder`: that of all checkpoints.
// FAILED_PRECONDITION: the chain is a base alone, or one of its files is missing or damaged. ALREADY_EXISTS.
// All others are the FileSystem's. After an error there is no new checkpoint unless publishing it failed.
// Thread-safety: any thread, one for each id, while the chain is not removed.
Result<Manifest> Compact(FileSystem& files, const std::string& folder, const Chain& chain,
                         const CompactOptions& options);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_COMPACTION_H_
