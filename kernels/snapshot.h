// A ShardSnapshot has the rows of a shard as they were when Shard::BeginSnapshot was called.
// Thread-safety: same as the device.
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
  // Lists only rows that have changed since the last kept snapshot that was begun with `remember`, or since
  // TrackChanges, and the keys that were erased since.
  bool changed_only = false;
  // If the snapshot is kept, changes count from it on. REQUIRES: TrackChanges.
  bool remember = false;
  // The device memory for rows that change before they are read. If 0, such rows have to be read first.
  std::size_t max_copy_on_write_bytes = 0;
};

// The rows of a snapshot, in no order. To apply a delta, erase `erased` and then load the rows: a key may be
// in both.
struct SnapshotInfo {
  std::vector<Key> keys;
  std::vector<RowIndex> rows;  // [keys] for ShardSnapshot::Read
  std::vector<Key> erased;     // distinct; none unless changed_only
};

// A shard's open snapshot. Every call throws std::logic_error once End was called.
class ShardSnapshot {
 public:
  virtual ~ShardSnapshot() = default;
  ShardSnapshot(const ShardSnapshot&) = delete;
  ShardSnapshot& operator=(const ShardSnapshot&) = delete;

  // REQUIRES: `rows` are of the snapshot, and each is read at most once. Writes the rows' records as they
  // were when the snapshot began, float[rows][dim + state]. `rows` and `host_records` lie in host memory and
  // stay in use until stream.Wait(). The shards' work stream collects the rows, and `stream` brings them to
  // the host. Call Read again once `stream` is done; before that, the work stream would wait for `stream`.
  // One stream reads all of a snapshot. Throws std::bad_alloc, with nothing read.
  virtual void Read(Stream& stream, std::span<const RowIndex> rows, float* host_records) = 0;

  // Returns how many more rows could be saved now (FoundBatch::CopyBeforeWrite). Waits.
  virtual std::uint64_t Room() = 0;

  // REQUIRES: the stream that read the snapshot is done. Ends the snapshot, whether all was read or not. If
  // it began with `remember` and is not `kept`, changes before it count again.
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
