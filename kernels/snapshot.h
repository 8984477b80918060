// ShardSnapshot: the rows of a shard as they were when Shard::BeginSnapshot was called.
// Thread-safety: the device's.
#ifndef SLOTWISE_KERNELS_SNAPSHOT_H_
#define SLOTWISE_KERNELS_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/stream.h"
#include "slotwise/types.h"

namespace slotwise {

struct SnapshotOptions {
  // Only rows that have changed since the last kept snapshot that was begun with `remember`, or since
  // TrackChanges; with the keys that were erased since.
  bool changed_only = false;
  // Changes count from this snapshot on, if it is kept. REQUIRES: TrackChanges.
  bool remember = false;
  // Device memory for rows that change before they are read. With none, such rows have to be read first.
  std::size_t max_copy_on_write_bytes = 0;
};

// The rows of a snapshot, in no order. A delta is applied by forgetting `erased` and then loading the rows: a
// key may be in both.
struct SnapshotInfo {
  std::vector<Key> keys;
  std::vector<RowIndex> rows;  // [keys] by which ShardSnapshot::Read is asked
  std::vector<Key> erased;     // distinct; none unless changed_only
};

// A shard's open snapshot. Every call throws std::logic_error once End was called.
class ShardSnapshot {
 public:
  virtual ~ShardSnapshot() = default;
  ShardSnapshot(const ShardSnapshot&) = delete;
  ShardSnapshot& operator=(const ShardSnapshot&) = delete;

  // REQUIRES: rows of the snapshot, each of which is asked for at most once. Writes the rows' records as they
  // were when the snapshot began, float[rows][dim + state]. `rows` and `host_records` lie in host memory and
  // stay in use until stream.Wait(). The rows are collected in the order of the shards' work, and of
  // `stream`, which brings them to the host: ask again once `stream` is done, or the shards' work waits for
  // it. All of a snapshot is read by one stream. Throws std::bad_alloc, with nothing read.
  virtual void Read(Stream& stream, std::span<const RowIndex> rows, float* host_records) = 0;

  // Returns how many rows more could be saved now (FoundBatch::CopyBeforeWrite). Waits.
  virtual std::uint64_t Room() = 0;

  // REQUIRES: the stream that read the snapshot is done. Ends it, whether all was read or not. If it was to
  // be remembered and is not `kept`, what had changed before it counts as changed again.
  virtual void End(bool kept) = 0;

 protected:
  ShardSnapshot() = default;
};

struct BegunSnapshot {
  ShardSnapshot* snapshot;  // the shard's
  SnapshotInfo info;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_SNAPSHOT_H_
