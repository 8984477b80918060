// Reads a chain of checkpoints on any number of ranks. A new rank reads from every old rank's files only the
// buckets that the new rank owns now.
//
// Checksums show that files are undamaged, but not who wrote them. So the reader also checks headers, the
// order of keys, and that rows hold only numbers that rows can have.
// Errors: FAILED_PRECONDITION, naming the file: the file is missing or damaged, or holds data that no server
// writes; for such data the message also names the place. All other errors are the FileSystem's.
// Thread-safety: a reader, one thread at a time; free functions, any thread.
#ifndef SLOTWISE_SERVER_DURABILITY_CHECKPOINT_READER_H_
#define SLOTWISE_SERVER_DURABILITY_CHECKPOINT_READER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/durability/block_file.h"
#include "server/durability/bucket_order.h"
#include "server/durability/checkpoints.h"
#include "server/durability/file_system.h"
#include "server/durability/manifest.h"
#include "server/durability/table_arrays.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

// Reads one old rank's files of one table. Keeps a block of each open file in memory.
class RankTableReader {
 public:
  // Reads the starts, and checks that the rank had only buckets that it owned. `folder` is the checkpoint's.
  // `bucket_of` returns the bucket that a key must have; null accepts the bucket that the key's place says.
  // REQUIRES: `files` and `table` outlive this.
  static Result<RankTableReader> Open(FileSystem& files, const std::string& folder, const TableEntry& table,
                                      std::uint32_t rank, BucketFunction bucket_of);

  const BucketStarts& starts() const { return starts_; }
  const BucketStarts& erased_starts() const { return erased_starts_; }  // all 0 in a base

  // Each call reads from index `begin` on. Records are float[n][RecordFloats].
  Status ReadKeys(std::uint64_t begin, std::span<Key> keys);
  Status ReadRecords(std::uint64_t begin, std::span<float> records);
  Status ReadErased(std::uint64_t begin, std::span<Key> keys);
  // Reads records as ReadRecords does, and is faster for records that follow those of the call before.
  // REQUIRES: the caller calls Settle in the end. Until Settle returned OK, the records may be damaged.
  Status ReadRecordsOn(std::uint64_t begin, std::span<float> records);
  Status Settle();

  // Closes the files. A later read opens them again.
  void Close() { readers_.clear(); }

 private:
  RankTableReader(FileSystem& files, std::string folder, const TableEntry& table, std::uint32_t rank,
                  BucketFunction bucket_of);

  std::string PathOf(std::size_t place) const { return folder_ + "/" + rank_entry_->files[place].name; }
  Result<BlockReader*> File(std::size_t place);
  Result<BucketStarts> ReadStarts(std::size_t place, std::uint64_t count);
  using Read = Status (BlockReader::*)(std::uint64_t, std::span<std::byte>);

  // Fills `bytes` from row `begin` of an array on.
  Status ReadArray(std::size_t place, std::uint64_t begin, std::uint64_t row_bytes,
                   std::span<std::byte> bytes, Read read = &BlockReader::Read);
  // Fills `keys`, and checks that they are in bucket order.
  Status ReadKeysOf(std::size_t place, std::uint64_t begin, std::span<Key> keys, const BucketStarts& starts,
                    BucketOrderChecker& order);
  Status ReadRecords(std::uint64_t begin, std::span<float> records, Read read);
  // Returns an error if a number in `bytes` is wrong. `begin` is the first number's row.
  Status CheckScores(std::size_t place, std::uint64_t begin, std::span<const std::byte> bytes) const;
  Status CheckNumbers(std::size_t place, std::uint64_t begin, std::uint32_t width,
                      std::span<const std::byte> bytes) const;
  DataType TypeOf(std::size_t place) const;
  Status ReadColumns(std::size_t place, std::uint64_t begin, std::uint32_t first, std::uint32_t width,
                     std::span<float> records, Read read);

  FileSystem* files_;
  std::string folder_;
  const TableEntry* table_;
  const RankEntry* rank_entry_;
  std::uint32_t rank_;
  BucketStarts starts_;
  BucketStarts erased_starts_;
  BucketOrderChecker order_;
  BucketOrderChecker erased_order_;
  std::vector<ArrayFile> arrays_;
  std::vector<std::optional<BlockReader>> readers_;  // in the order of TableArrays::All()
  std::vector<std::byte> bytes_;
};

// Receives what ReadTable reads. Arguments are valid during the call only. An error ends the reading, and
// ReadTable returns it.
struct RowSink {
  // `records` is float[keys.size()][RecordFloats]. The sink may put other arrays in the place of both.
  std::function<Status(std::vector<Key>& keys, std::vector<float>& records)> rows;
  std::function<Status(std::span<const Key> keys)> erase;
};

// Reads all rows of a table that `rank` owns by `owners`: the rows of the base, then of each delta the erased
// keys and after them the rows. A key that several links have comes several times, and the last one counts.
// Records may be damaged until ReadTable returned OK; after FAILED_PRECONDITION the sink must discard what it
// took. `folder` is the folder of all checkpoints, and `bucket_of` is as in RankTableReader::Open. A call of
// the sink gets at most `chunk_bytes` of records, or else one record. NOT_FOUND: the chain's last checkpoint
// does not have the table.
Status ReadTable(FileSystem& files, const std::string& folder, const Chain& chain, TableId table,
                 const BucketOwners& owners, BucketFunction bucket_of, std::uint32_t rank,
                 std::uint64_t chunk_bytes, const RowSink& sink);

// Returns the ledger of the chain's last checkpoint.
Result<std::vector<std::byte>> ReadLedger(FileSystem& files, const std::string& folder, const Chain& chain);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_CHECKPOINT_READER_H_
