// CheckpointWriter: what a rank writes of a checkpoint, and how rank 0 makes all of it exist at once.
//
// All ranks write into the folder `.<id>.partial`. Once all have said what they wrote, rank 0 writes the
// manifest and renames the folder to `<id>`. Until then the checkpoint does not exist, and whatever stops a
// writer leaves a `.partial` folder that Checkpoints::RemoveLeftovers takes away.
// Errors: the FileSystem's; after one, the folder is good for nothing. INTERNAL: the caller's keys are in
// another order than it said, or fewer or more: a bug of Slotwise that must not reach the disk.
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

// What a TableWriter is told before the first key.
struct TableWriterOptions {
  TableId table{0};
  TableOptions options;
  DataType value_type = DataType::kFloat32;
  BucketStarts starts;                        // of this rank's keys, in bucket order
  std::optional<BucketStarts> erased_starts;  // deltas: of the erased keys
};

// Writes a rank's files of one table. Keys, records and erased keys come each in bucket order, in pieces of
// any size, and none waits for another.
class TableWriter {
 public:
  Status AppendKeys(std::span<const Key> keys);
  // `records` is float[n][dim + StateFloats]: rows with their state. Values that are written in 16 bits are
  // rounded to nearest, ties to even, but never to infinity.
  Status AppendRecords(std::span<const float> records);
  Status AppendErased(std::span<const Key> keys);

  // Writes what is left, and begins to bring it to disk: with several tables, of all before the first Finish.
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
  std::vector<BlockWriter> writers_;  // as TableArrays::All()
  BucketOrderChecker keys_;
  BucketOrderChecker erased_;
  std::uint64_t records_ = 0;
  float largest_error_ = 0.0F;
  std::vector<float> column_;
  std::vector<std::byte> narrow_;
};

class CheckpointWriter {
 public:
  // `folder`: that of all checkpoints. Makes `.<id>.partial` in it unless another rank has.
  // REQUIRES: IsCheckpointId(id).
  static Result<CheckpointWriter> Begin(FileSystem& files, const std::string& folder, const std::string& id,
                                        std::uint32_t rank, std::uint64_t block_bytes = kBlockBytes);

  // Several tables may be written at once. REQUIRES: this outlives no FileSystem, and the table is new here.
  Result<TableWriter> BeginTable(TableWriterOptions options);

  // Writes the ledger; one rank does.
  Result<FileEntry> WriteLedger(std::span<const std::byte> bytes);

  // Makes durable the names that this rank made. Each rank calls it before it tells rank 0 that it is done.
  Status Finish();

 private:
  CheckpointWriter(FileSystem& files, std::string partial, std::uint32_t rank, std::uint64_t block_bytes)
      : files_(&files), partial_(std::move(partial)), rank_(rank), block_bytes_(block_bytes) {}

  FileSystem* files_;
  std::string partial_;
  std::uint32_t rank_;
  std::uint64_t block_bytes_;
};

// Rank 0: makes the checkpoint exist, once every rank's Finish returned OK, and sets manifest.checksum.
// FAILED_PRECONDITION: the manifest contradicts itself. ALREADY_EXISTS: there is a checkpoint of that id.
// After another error the checkpoint may exist or not, but never a part of it.
Status PublishCheckpoint(FileSystem& files, const std::string& folder, Manifest& manifest);

// Returns the path of `.<id>.partial`.
std::string PartialFolder(const std::string& folder, const std::string& id);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_CHECKPOINT_WRITER_H_
