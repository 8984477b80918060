// Candidates: the keys that a table with an admission by frequency counts before they get rows. They are the
// rows of a table of their own, the candidates' table, whose scores count (CandidatesOf).
//
// A push prepares its own table with the candidates as they are; then it inserts all of its keys without a
// row into the candidates' table, scores them as a push does, and removes those that were admitted. With a
// Bloom counter the rows are blocks of a filter: the push inserts its keys' blocks, and raises counters in
// them. So what holds for a table's rows holds for counts: evictions, journal, checkpoints, deltas, other
// numbers of ranks.
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_CANDIDATES_H_
#define SLOTWISE_SERVER_ENGINE_CANDIDATES_H_

#include <stdexcept>
#include <utility>

#include "kernels/shard.h"
#include "server/engine/evictor.h"
#include "server/engine/tables.h"
#include "slotwise/status.h"

namespace slotwise {

class Candidates {
 public:
  // Returns what a table has to know for its next push. `candidates`: the table's, or null. A table's steps
  // can jump by an import, and those of its candidates follow here.
  static Admitting For(const Table& table, Table* candidates) {
    if (candidates == nullptr) return {.step = table.steps + 1};
    candidates->steps = table.steps;
    return {.step = table.steps + 1, .candidates = candidates->shard.get()};
  }

  // Prepares to count the keys. RESOURCE_EXHAUSTED: no memory.
  static Result<NewBatch> Prepare(Table& candidates, const CandidateKeys& keys) {
    // Makes sure that Count will have the memory to erase.
    if (!keys.admitted.keys.empty()) {
      if (const auto room = candidates.shard->PrepareErase(keys.admitted); !room.ok()) return room.status();
    }
    return candidates.shard->PreparePush(keys.absent).Finish();
  }

  // Counts the keys, which were inserted, and removes the admitted ones. The candidates' table makes the
  // step.
  static void Count(Table& candidates, InsertedBatch batch, const CandidateKeys& keys,
                    const Evictor::BeforeChange& before_change) {
    Shard& shard = *candidates.shard;
    if (before_change) before_change(shard, batch);
    ++candidates.steps;
    if (keys.raises.window > 0) return std::move(batch).RaiseCounters(keys.raises);
    std::move(batch).Touch(candidates.steps);
    if (keys.admitted.keys.empty()) return;
    Result<ErasableBatch> erased = shard.PrepareErase(keys.admitted);
    if (!erased.ok())
      throw std::runtime_error("admitted keys cannot be taken from the counts: " + erased.status().message());
    if (before_change) before_change(shard, *erased);
    std::move(*erased).Erase();
  }
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CANDIDATES_H_
