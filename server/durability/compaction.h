// Compaction: folds a chain of checkpoints into one base. It needs only their files.
//
// The new base has the state, the ranks and the bucket owners of the chain's last checkpoint, and equals byte
// for byte a base written in its place. If the links' values have different types, the base's are float32.
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
  std::string id;              // the new base's id
  std::string server_version;  // of the program that folds
  // The most memory for rows, though never less than one bucket's rows. A block of each file of one old
  // rank's table comes on top.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  std::uint64_t block_bytes = kBlockBytes;
};

// Writes and publishes the base, and returns its manifest. The manifest's `created` is that of the chain's
// last checkpoint, because both have the same state. `folder` is the folder of all checkpoints.
// FAILED_PRECONDITION: the chain is a base alone, or one of its files is missing or damaged. ALREADY_EXISTS.
// Others are the FileSystem's. After an error there is no new checkpoint, unless the publishing failed.
// Thread-safety: any thread, if no two fold into one id and the chain is not removed meanwhile.
Result<Manifest> Compact(FileSystem& files, const std::string& folder, const Chain& chain,
                         const CompactOptions& options);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_COMPACTION_H_
