#include "server/engine/scratch_budget.h"

#include <algorithm>

namespace slotwise {

void ScratchBudget::Use(std::span<const Batch> round) {
  if (most_ == kNoBound) return;
  for (const Batch& batch : round) {
    const auto [place, is_new] = places_.try_emplace(batch.table);
    if (is_new) {
      place->second = tables_.insert(tables_.begin(), {batch.table, 0});
    } else {
      tables_.splice(tables_.begin(), tables_, place->second);
    }
    Batch& table = *place->second;
    kept_ += std::max(batch.bytes, table.bytes) - table.bytes;
    table.bytes = std::max(batch.bytes, table.bytes);
  }
  while (kept_ > most_ && tables_.size() > round.size()) {
    Free(tables_.back(), 0);
    places_.erase(tables_.back().table);
    tables_.pop_back();
  }
  if (kept_ <= most_) return;
  // The round's own tables keep too much from larger batches.
  for (const Batch& batch : round) {
    Batch& table = *places_.at(batch.table);
    if (table.bytes > batch.bytes) Free(table, batch.bytes);
  }
}

void ScratchBudget::Free(Batch& table, std::uint64_t needed) {
  free_(table.table);
  kept_ -= table.bytes - needed;
  table.bytes = needed;
}

void ScratchBudget::Forget(TableId table) {
  const auto place = places_.find(table);
  if (place == places_.end()) return;
  Free(*place->second, 0);
  tables_.erase(place->second);
  places_.erase(place);
}

}  // namespace slotwise
