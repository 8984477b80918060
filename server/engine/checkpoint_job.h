// CheckpointJob: writes one rank's part of a checkpoint in the background.
//
// The engine's thread begins the shards' snapshots and hands them over. From then on two threads work on the
// job. The job's thread sorts keys into bucket order, a piece at a time, and writes. The engine's thread
// reads rows from the device in that order, some at a time when it has time (Advance), or a table's next rows
// at once when the copy-on-write buffer is nearly full (ReadNow). Rows pass through a few buffers.
//
//     job      |sort||sort||write||sort||write||write||sort| ...  |sync| result
//     engine         |read||read|    |read||read|   a round   |read|
//
// Thread-safety: the job's thread calls Step and Wait; the engine's thread calls Advance, AdvanceAndWait and
// ReadNow, and alone uses the snapshots; any thread calls Cancel and result.
#ifndef SLOTWISE_SERVER_ENGINE_CHECKPOINT_JOB_H_
#define SLOTWISE_SERVER_ENGINE_CHECKPOINT_JOB_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/shard.h"
#include "server/durability/bucket_order.h"
#include "server/durability/checkpoint_writer.h"
#include "server/durability/file_system.h"
#include "server/durability/threads.h"
#include "slotwise/status.h"

namespace slotwise {

// A table's snapshot.
struct SnapshotOfTable {
  TableId table{0};
  TableOptions options;
  ShardSnapshot* snapshot = nullptr;
  SnapshotInfo info;
};

struct CheckpointJobOptions {
  FileSystem* files = nullptr;
  std::string folder;  // of all checkpoints
  std::string id;
  std::uint32_t rank = 0;
  bool delta = false;
  DataType value_type = DataType::kFloat32;  // as asked for: SavedAs (table_arrays.h) says what is written
  std::optional<std::vector<std::byte>> ledger;  // on the rank that writes it
  Threads* threads = &SystemThreads();
  std::size_t buffers = 3;
  std::size_t buffer_bytes = std::size_t{16} << 20;
};

// A rank's part of a checkpoint.
struct WrittenPart {
  std::vector<RankEntry> tables;  // in the order of the snapshots
  FileEntry ledger;
};

class CheckpointJob {
 public:
  // Calls `nudge`, from the job's thread, when the engine has something to do for the job. `device` outlives
  // it. Throws std::bad_alloc for want of buffers.
  CheckpointJob(Device& device, CheckpointJobOptions options, std::vector<SnapshotOfTable> tables,
                std::function<void()> nudge);

  enum class Progress : std::uint8_t { kWorked, kWaits, kEnded };
  // Does a piece of the job. kWaits: the engine has to act first; Wait returns when it may have acted.
  Progress Step();
  void Wait();

  // Hands over the rows that have arrived, and begins to read about `bytes` bytes of rows, if a buffer is
  // free and no rows are on their way. Returns the bytes that it asked the device for. Does not wait.
  std::size_t Advance(std::size_t bytes);
  // The same, and waits until the rows are there.
  void AdvanceAndWait(std::size_t bytes);
  // Reads a table's next rows: all sorted rows that a buffer holds. Waits for sorted rows and then for a
  // buffer, for at most `left`, and subtracts the time from `left`; cancels the job if the wait would be
  // longer. Returns false if the job has read all rows of that table, or was cancelled.
  bool ReadNow(const ShardSnapshot& snapshot, std::chrono::milliseconds& left);
  bool rows_are_on_the_way() const { return !on_the_way_.empty(); }

  // Ends the job soon, with the error `why`. The files that it wrote are useless.
  void Cancel(const Status& why = Cancelled("the checkpoint was given up"));
  // Returns nothing until Step has returned kEnded.
  std::optional<Result<WrittenPart>> result() const;

 private:
  struct Buffer {
    HostMemory memory;
    std::size_t table = 0;
    std::size_t rows = 0;
    float* records() const { return static_cast<float*>(memory.get()); }
  };
  struct Table {
    SnapshotOfTable snapshot;
    std::uint32_t floats = 0;  // of a record
    std::size_t count = 0;     // of rows
    // The job's thread sorts, and the engine reads what is sorted.
    std::optional<BucketSort<KeyRow>> sort;
    std::vector<RowIndex> rows;  // [count], of which the first `sorted` are known
    std::size_t sorted = 0;
    std::size_t asked = 0;    // rows that the engine has asked the device for
    std::size_t written = 0;  // rows that the job's thread has written
    std::optional<TableWriter> writer;
    bool ending = false;  // the writer has begun to finish
    std::optional<RankEntry> entry;
  };

  Progress DoNext();
  std::size_t RowsABuffer(const Table& table) const;
  void Ask(std::size_t table, Buffer* buffer);  // by the engine's thread
  void HandOver();                              // the rows that have arrived
  // Returns the table that the engine waits for, or the first one with unsorted keys; null if none has.
  Table* NextToSort();
  Status BeginSort(Table& table);
  Status SortPiece(Table& table);
  Status Write(const Buffer& buffer);
  Status BeginClosing(Table& table);
  Status Close(Table& table);
  Progress End(Status status);

  const CheckpointJobOptions options_;
  const std::function<void()> nudge_;
  std::vector<Table> tables_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<Stream> stream_;  // used by the engine's thread
  std::deque<Buffer*> on_the_way_;  // used by the engine's thread

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Buffer*> free_;
  std::deque<Buffer*> filled_;
  std::size_t next_to_read_ = 0;  // the first table of which rows are to be read
  Table* waited_for_ = nullptr;   // the engine needs its next rows at once
  bool cancelled_ = false;
  Status why_;  // the job was cancelled
  std::optional<Result<WrittenPart>> result_;

  // Used by the job's thread.
  std::optional<CheckpointWriter> writer_;
  std::size_t closed_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CHECKPOINT_JOB_H_
