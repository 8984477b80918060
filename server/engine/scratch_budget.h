// ScratchBudget bounds the memory that the shards of all tables keep for their next batches.
//
// A shard works on a batch in memory that grows with the batch, and keeps that memory for the next batch. All
// shards together keep as much as one round needs: beyond that, the least recently used tables free theirs.
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
  // A batch that a table's shard is about to work on, and the batch's bytes in a round.
  struct Batch {
    TableId table{0};
    std::uint64_t bytes = 0;
  };

  // `free` makes a table's shard give its memory back.
  explicit ScratchBudget(std::function<void(TableId)> free) : free_(std::move(free)) {}

  // Bounds the memory that all shards keep to the need of batches of `bytes` bytes. Before this call there is
  // no bound.
  void SetMost(std::uint64_t bytes) { most_ = bytes; }

  // Called before the shards of a round's tables work, with each table once. Takes time in proportion to
  // these tables and the tables that free memory.
  void Use(std::span<const Batch> round);
  // The table is removed, and its shard frees its memory.
  void Forget(TableId table);

  // Returns the sum, over tables, of the largest batch's bytes since the table last freed its memory.
  std::uint64_t kept() const { return kept_; }

 private:
  using Tables = std::list<Batch>;

  void Free(Batch& table, std::uint64_t needed);

  const std::function<void(TableId)> free_;
  static constexpr std::uint64_t kNoBound = ~std::uint64_t{0};
  std::uint64_t most_ = kNoBound;
  std::uint64_t kept_ = 0;
  Tables tables_;  // the most recently used comes first
  std::unordered_map<TableId, Tables::iterator> places_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCRATCH_BUDGET_H_
