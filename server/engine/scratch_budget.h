// ScratchBudget bounds the memory that the shards of all tables keep for their next batches.
//
// A shard works on a batch in memory that grows with the batch, and keeps that memory for the next batch. All
// shards together keep as much as one round needs: beyond it, the tables that were used longest ago give
// theirs back.
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_SCRATCH_BUDGET_H_
#define SLOTWISE_SERVER_ENGINE_SCRATCH_BUDGET_H_

#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <unordered_map>
#include <utility>

#include "slotwise/types.h"

namespace slotwise {

class ScratchBudget {
 public:
  // A batch that a table's shard is about to work on, and the bytes that it counts as in a round.
  struct Batch {
    TableId table{0};
    std::uint64_t bytes = 0;
  };

  // `free` makes a table's shard give its memory back.
  explicit ScratchBudget(std::function<void(TableId)> free) : free_(std::move(free)) {}

  // From now on all shards keep no more than batches of so many bytes need. Before, they keep all.
  void SetMost(std::uint64_t bytes) { most_ = bytes; }

  // Call before the shards of a round's tables work, each table once. Takes time by these tables, and by
  // those that give memory back.
  void Use(std::span<const Batch> round);
  // The table goes, and its shard gives back what it keeps.
  void Forget(TableId table);

  // What all tables' largest batches since they gave memory back count as.
  std::uint64_t kept() const { return kept_; }

 private:
  using Tables = std::list<Batch>;

  void Free(Batch& table, std::uint64_t needed);

  const std::function<void(TableId)> free_;
  static constexpr std::uint64_t kNoBound = ~std::uint64_t{0};
  std::uint64_t most_ = kNoBound;
  std::uint64_t kept_ = 0;
  Tables tables_;  // the one that was used last comes first
  std::unordered_map<TableId, Tables::iterator> places_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCRATCH_BUDGET_H_
