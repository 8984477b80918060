// TableMaker: makes tables on this rank, for a client's request or a journal's record alike.
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_TABLE_MAKER_H_
#define SLOTWISE_SERVER_ENGINE_TABLE_MAKER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/engine/rank_limit.h"
#include "server/engine/tables.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

class TableMaker {
 public:
  // `device` outlives it. `secret` seeds the placement in this rank's hash tables.
  TableMaker(Device& device, const Collective& collective, const HashSecret& secret,
             const RankLimit& rank_limit)
      : device_(device),
        rank_(collective.rank()),
        ranks_(collective.size()),
        secret_(secret),
        rank_limit_(rank_limit) {}

  // Lets tables that are made from now on track their changes, for deltas.
  void TrackChanges(std::uint64_t max_erased) {
    track_ = true;
    max_erased_ = max_erased;
  }

  // Returns an empty table. RESOURCE_EXHAUSTED: no memory for `initial_rows`.
  Result<Table> Make(TableId id, const TableOptions& options, std::uint64_t generation) const {
    return Make(id, options, generation, MostRowsOf(options));
  }
  // Makes a table for recovered rows, which another number of ranks may have held: this rank takes all of its
  // own rows, even beyond its bound for new rows.
  Result<Table> MakeForRowsOfBefore(TableId id, const TableOptions& options, std::uint64_t generation) const {
    return Make(id, options, generation, kMaxRowsPerShard);
  }

  // Returns this rank's bound of rows. Counts of keys are small, and their bound is that of all ranks: the
  // same keys are counted on any ranks.
  std::uint64_t MostRowsOf(const TableOptions& options) const {
    return IsOfCandidates(options.name.view()) ? kMaxRowsPerShard
                                               : rank_limit_.RowsOf(options.max_rows, ranks_);
  }

 private:
  Result<Table> Make(TableId id, const TableOptions& options, std::uint64_t generation,
                     std::uint64_t most_rows) const {
    const ShardPlace place{rank_, ranks_, EvenBucketMap(ranks_), secret_, most_rows};
    Result<std::unique_ptr<Shard>> shard = device_.MakeShard(options, place);
    if (!shard.ok()) return shard.status();
    if (track_) {
      if (Status tracked = (*shard)->TrackChanges(max_erased_); !tracked.ok()) return tracked;
    }
    return Table{.info = {id, options},
                 .shard = std::move(*shard),
                 .generation = generation,
                 .learning_rate = options.optimizer.learning_rate,
                 .max_rows_of_rank = MostRowsOf(options),
                 .candidates = options.has_candidates() ? IdOfCandidates(id) : TableId{0}};
  }

  Device& device_;
  const Rank rank_;
  const int ranks_;
  const HashSecret secret_;
  const RankLimit rank_limit_;
  bool track_ = false;
  std::uint64_t max_erased_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_TABLE_MAKER_H_
