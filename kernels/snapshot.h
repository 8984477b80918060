// What a shard's snapshot is asked for, and what it begins with: see Shard::BeginSnapshot.
#ifndef SLOTWISE_KERNELS_SNAPSHOT_H_
#define SLOTWISE_KERNELS_SNAPSHOT_H_

#include <cstddef>
#include <vector>

#include "slotwise/types.h"

namespace slotwise {

struct SnapshotOptions {
  // Only rows that have changed since the last kept snapshot that was begun with `remember`, or since
  // TrackChanges; with the keys that were erased since.
  bool changed_only = false;
  // Changes count from this snapshot on, if it is kept. REQUIRES: TrackChanges.
  bool remember = false;
  // Device memory for rows that change before they are read. With none, such rows have to be read first.
  std::size_t max_preimage_bytes = 0;
};

// The rows of a snapshot, in no order. A delta is applied by forgetting `erased` and then loading the rows: a
// key may be in both.
struct SnapshotInfo {
  std::vector<Key> keys;
  std::vector<RowIndex> rows;  // [keys] by which ReadSnapshot is asked
  std::vector<Key> erased;     // distinct; none unless changed_only
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_SNAPSHOT_H_
