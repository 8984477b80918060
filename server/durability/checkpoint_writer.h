// CheckpointWriter writes a rank's files of a checkpoint; PublishCheckpoint makes all ranks' appear at once.
//
// All ranks write into the folder `.<id>.partial`. Once all ranks are done, rank 0 writes the manifest and
// renames the folder to `<id>`. Until then the checkpoint does not exist; if the writers stop,
// Checkpoints::RemoveLeftovers removes the `.partial` folder.
// Errors: the FileSystem's; after one, the folder is unusable. INTERNAL: the caller's keys are in another
// order than stated, or fewer or more: a bug of Slotwise that must not reach the disk.
// Thread-safety: one thread at a time. Ranks write at the same time.
#ifndef SLOTWISE_SERVER_DURABILITY_CHECKPOINT_WRITER_H_
#define SLOTWISE_SERVER_DURABILITY_CHECKPOINT_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/durability/block_file.h"
#include "server/durability/bucket_order.h"
#include "server/durability/file_system.h"
#include "server/durability/manifest.h"
#include "server/durability/table_arrays.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

// Describes a table before its first key is written.
struct TableWriterOptions {
  TableId table{0};
  TableOptions options;
  DataType value_type = DataType::kFloat32;
  BucketStarts starts;                        // of this rank's keys
  std::optional<BucketStarts> erased_starts;  // deltas: of the erased keys
};

// Writes a rank's files of one table. Keys, records and erased keys each come in bucket order, in pieces of
// any size; the three sequences need not keep pace with each other.
class TableWriter {
 public:
  Status AppendKeys(std::span<const Key> keys);
  // `records` is float[n][RecordFloats]: rows with their state. Values that are stored in 16 bits are
  // rounded to nearest, ties to even, but never to infinity.
  Status AppendRecords(std::span<const float> records);
  Status AppendErased(std::span<const Key> keys);

  // Begins to bring the files to disk. A caller with several tables calls it on all before the first Finish.
  Status BeginFinish();

  // Syncs all files and the table's folder.
  Result<RankEntry> Finish();

 private:
  friend class CheckpointWriter;
  TableWriter(FileSystem& files, std::string folder, TableWriterOptions options)
      : files_(&files), folder_(std::move(folder)), options_(std::move(options)) {}

  Status Begin(std::uint32_t rank, std::uint64_t block_bytes);
  Status AppendPiece(std::span<const float> records);
  Status AppendValues(std::span<const float> values);

  FileSystem* files_;
  std::string folder_;
  TableWriterOptions options_;
  std::vector<BlockWriter> writers_;  // in the order of TableArrays::All()
  BucketOrderChecker keys_;
  BucketOrderChecker erased_;
  std::uint64_t records_ = 0;
  float largest_error_ = 0.0F;
  std::vector<float> column_;
  std::vector<std::byte> narrow_;
};

class CheckpointWriter {
 public:
  // Makes the folder `.<id>.partial` in `folder`, the folder of all checkpoints, unless another rank has.
  // REQUIRES: IsCheckpointId(id).
  static Result<CheckpointWriter> Begin(FileSystem& files, const std::string& folder, const std::string& id,
                                        std::uint32_t rank, std::uint64_t block_bytes = kBlockBytes);

  // Several tables may be written at once. REQUIRES: the FileSystem outlives this, and the table is new here.
  Result<TableWriter> BeginTable(TableWriterOptions options);

  // Writes the ledger. Only one rank calls this.
  Result<FileEntry> WriteLedger(std::span<const std::byte> bytes);

  // Makes the names that this rank created durable. Each rank calls it before it reports to rank 0.
  Status Finish();

 private:
  CheckpointWriter(FileSystem& files, std::string partial, std::uint32_t rank, std::uint64_t block_bytes)
      : files_(&files), partial_(std::move(partial)), rank_(rank), block_bytes_(block_bytes) {}

  FileSystem* files_;
  std::string partial_;
  std::uint32_t rank_;
  std::uint64_t block_bytes_;
};

// Makes the checkpoint exist, and sets manifest.checksum. Rank 0 calls it after every rank's Finish was OK.
// FAILED_PRECONDITION: the manifest contradicts itself. ALREADY_EXISTS: there is a checkpoint of that id.
// After another error the checkpoint is there or not, but never in part.
Status PublishCheckpoint(FileSystem& files, const std::string& folder, Manifest& manifest);

// Returns the path of `.<id>.partial`.
std::string PartialFolder(const std::string& folder, const std::string& id);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_CHECKPOINT_WRITER_H_
