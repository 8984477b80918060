// Reads a chain of checkpoints back, on any number of ranks: a new rank reads from every old rank's files the
// buckets that it now owns, and no others.
//
// Checksums say that files are those that were written, and not who has written them. So what is read is
// checked as well: headers, the order of keys, and that rows are what rows can be.
// Errors: FAILED_PRECONDITION, naming the file: it is missing or damaged, or holds what no server writes;
// then the message names the place, too. All others are the FileSystem's.
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

// One old rank's files of one table. It keeps a block of each open file in memory.
class RankTableReader {
 public:
  // Reads the starts, and checks that the rank had only buckets that it owned. `folder`: the checkpoint's.
  // `bucket_of`: which bucket a key has to be of, or null: whichever its place says.
  // REQUIRES: `files` and `table` outlive this.
  static Result<RankTableReader> Open(FileSystem& files, const std::string& folder, const TableEntry& table,
                                      std::uint32_t rank, BucketFunction bucket_of);

  const BucketStarts& starts() const { return starts_; }
  const BucketStarts& erased_starts() const { return erased_starts_; }  // of a base all 0

  // Each reads from the `begin`th on. Records are float[n][dim + StateFloats].
  Status ReadKeys(std::uint64_t begin, std::span<Key> keys);
  Status ReadRecords(std::uint64_t begin, std::span<float> records);
  Status ReadErased(std::uint64_t begin, std::span<Key> keys);
  // Reads records as ReadRecords does, faster if they follow those that were read before. REQUIRED: Settle in
  // the end. Until it returned OK, records may be others than were written.
  Status ReadRecordsOn(std::uint64_t begin, std::span<float> records);
  Status Settle();

  // Closes the files until they are read again.
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
  // Fills `keys`, which have to be in bucket order.
  Status ReadKeysOf(std::size_t place, std::uint64_t begin, std::span<Key> keys, const BucketStarts& starts,
                    BucketOrderChecker& order);
  Status ReadRecords(std::uint64_t begin, std::span<float> records, Read read);
  // Returns what is wrong with numbers that were read, `begin` and so on being their rows.
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
  std::vector<std::optional<BlockReader>> readers_;  // as TableArrays::All()
  std::vector<std::byte> bytes_;
};

// Takes what is read. What it is given is valid during the call. An error ends the reading, and ReadTable
// returns it.
struct RowSink {
  // records: float[keys.size()][dim + StateFloats]. The sink may put other arrays in the place of both.
  std::function<Status(std::vector<Key>& keys, std::vector<float>& records)> rows;
  std::function<Status(std::span<const Key> keys)> erase;
};

// Reads all rows of a table that `rank` owns by `owners`: those of the base, and then of each delta the
// erased keys and then the rows. A key comes once for each link that has it, and the last time counts.
// Records may be damaged until ReadTable returned OK: it says FAILED_PRECONDITION then, and what the sink
// took is good for nothing. `folder`: that of all checkpoints. No call of the sink gets more than
// `chunk_bytes` of records, or else one record. A table that the chain's last checkpoint does not have is
// NOT_FOUND. `bucket_of`: as RankTableReader::Open has it.
Status ReadTable(FileSystem& files, const std::string& folder, const Chain& chain, TableId table,
                 const BucketOwners& owners, BucketFunction bucket_of, std::uint32_t rank,
                 std::uint64_t chunk_bytes, const RowSink& sink);

// Returns the ledger of the chain's last checkpoint.
Result<std::vector<std::byte>> ReadLedger(FileSystem& files, const std::string& folder, const Chain& chain);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_CHECKPOINT_READER_H_
