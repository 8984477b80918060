// CheckpointJob: what one rank writes of one checkpoint, beside its engine.
//
// The engine's thread begins the shards' snapshots and hands them over. From then on two threads work on the
// job: the job's own sorts keys into bucket order, a piece at a time, and writes; the engine's reads rows
// from the device, some at a time, in that order, when it has time (Advance), or a table's next rows at once
// when room for copies of rows is short (ReadNow). Rows pass in a few buffers, which the two hand to each
// other.
//
//     job      |sort||sort||write||sort||write||write||sort| ...  |sync| result
//     engine         |read||read|    |read||read|   a round   |read|
//
// Thread-safety: Step and Wait, by the job's thread; Advance, AdvanceAndWait and ReadNow, by the engine's;
// Cancel and result, by any. The snapshots are used by the engine's thread alone.
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
  DataType value_type = DataType::kFloat32;
  std::optional<std::vector<std::byte>> ledger;  // on the rank that writes it
  Threads* threads = &SystemThreads();
  std::size_t buffers = 3;
  std::size_t buffer_bytes = std::size_t{16} << 20;
};

// What a rank has written.
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
  // Does a piece of the job. kWaits: the engine has to do something first; Wait returns when it may have.
  Progress Step();
  void Wait();

  // Reads rows for about so many bytes, as far as there are buffers and nothing is on its way, and hands over
  // what was read. Returns the bytes that it asked the device for. Does not wait.
  std::size_t Advance(std::size_t bytes);
  // The same, and waits until the rows are there.
  void AdvanceAndWait(std::size_t bytes);
  // Reads a table's next rows, all that are sorted and a buffer holds. Waits until some are, and then for a
  // buffer,
  // no longer than `left`, of which it takes the time that it waited. Returns false if the job has read all
  // rows of that table, or was cancelled. If it would have to wait longer, it cancels the job.
  bool ReadNow(const ShardSnapshot& snapshot, std::chrono::milliseconds& left);
  bool rows_are_on_the_way() const { return !on_the_way_.empty(); }

  // Ends the job soon, with an error: `why` says which. What it wrote is good for nothing.
  void Cancel(const Status& why = Cancelled("the checkpoint was given up"));
  // Nothing while Step has not returned kEnded.
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
  void Ask(std::size_t table, Buffer* buffer);  // the engine's thread
  void HandOver();                              // what has arrived
  // The first table with unsorted keys, or the one whose rows the engine waits for. Null if all are sorted.
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
  std::unique_ptr<Stream> stream_;  // the engine's thread's
  std::deque<Buffer*> on_the_way_;  // the engine's thread's

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Buffer*> free_;
  std::deque<Buffer*> filled_;
  std::size_t next_to_read_ = 0;  // the first table of which rows are to be read
  Table* waited_for_ = nullptr;   // by the engine, which needs its next rows at once
  bool cancelled_ = false;
  Status why_;  // it was cancelled
  std::optional<Result<WrittenPart>> result_;

  // The job's thread's.
  std::optional<CheckpointWriter> writer_;
  std::size_t closed_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CHECKPOINT_JOB_H_
