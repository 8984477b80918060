// RecordedEvictions: a journal's record of what a round's batches evicted. A replay evicts the same rows
// again, and decides nothing: it removes the rows up to the recorded place, except those that the record
// spares. Thread-safety: plain values and free functions.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_EVICTIONS_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_EVICTIONS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/engine/evictor.h"
#include "server/engine/operations/record_bytes.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

struct ReplayContext;

struct RecordedEviction {
  TableId table{0};
  EvictionPlace last;
  EvictedSums all;              // of all ranks
  std::span<const Key> spared;  // of the rank that recorded; they lie in the record's bytes

  // Returns whether the fields that the ranks share are equal.
  friend bool operator==(const RecordedEviction& one, const RecordedEviction& other) {
    return one.table == other.table && one.last == other.last && one.all == other.all;
  }
};

void PutEvictions(RecordWriter& writer, std::span<const Eviction> evictions);
std::vector<RecordedEviction> GetEvictions(RecordReader& reader);

// Evicts again. REQUIRES: the ranks' records are alike; `of_ranks` have the same number of evictions.
// DATA_LOSS: they do not follow the state. RESOURCE_EXHAUSTED: no memory.
Status ReplayEvictions(ReplayContext& context, std::span<const std::span<const RecordedEviction>> of_ranks);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_EVICTIONS_H_
