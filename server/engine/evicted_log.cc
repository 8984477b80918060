#include "server/engine/evicted_log.h"

#include <algorithm>
#include <new>
#include <utility>

namespace slotwise {

void EvictedLog::Forget(TableId table) {
  if (starts_.erase(table) > 0) Remove(table);
}

void EvictedLog::Remove(TableId table) {
  std::erase_if(gone_, [&](const Gone& gone) {
    if (gone.table != table) return false;
    bytes_ -= gone.bytes();
    return true;
  });
}

void EvictedLog::Append(std::uint64_t round, RoundOutcome& outcome) {
  for (RoundOutcome::Removed& removed : outcome.removed) {
    const auto start = starts_.find(removed.table);
    if (removed.why == Removal::kErased || start == starts_.end()) continue;
    if (removed.listed && removed.keys.empty()) continue;
    try {
      if (!removed.listed) throw std::bad_alloc();
      gone_.push_back({round, removed.table, removed.why, std::move(removed.keys)});
      bytes_ += gone_.back().bytes();
    } catch (const std::bad_alloc&) {
      start->second = {round, 1};
      Remove(removed.table);
    }
  }
  while (bytes_ > most_bytes_) DropOldest();
}

void EvictedLog::DropOldest() {
  const std::uint64_t oldest = gone_.front().round;
  while (!gone_.empty() && gone_.front().round == oldest) {
    starts_.at(gone_.front().table) = {oldest, 1};
    bytes_ -= gone_.front().bytes();
    gone_.pop_front();
  }
}

EvictedLog::Start EvictedLog::StartOf(TableId table) const {
  const auto start = starts_.find(table);
  return start == starts_.end() ? Start{} : start->second;
}

EvictedLog::Place EvictedLog::List(TableId table, const Place& from, std::size_t most,
                                   std::vector<Entry>& entries) const {
  Place at;
  std::size_t left = most;
  auto gone = std::ranges::lower_bound(gone_, from.round, {}, &Gone::round);
  for (; gone != gone_.end(); ++gone) {
    if (gone->table != table) continue;
    if (gone->round != at.round) at = {gone->round, 0};
    const std::size_t size = gone->keys.size();
    const bool begins = at.round == from.round && from.key > at.key;
    const std::size_t first = begins ? std::min<std::uint64_t>(size, from.key - at.key) : 0;
    const std::size_t end = first + std::min(size - first, left);
    for (std::size_t i = first; i < end; ++i)
      entries.push_back({at.round, gone->keys[i], static_cast<std::uint64_t>(gone->why)});
    left -= end - first;
    if (end < size) return {at.round, at.key + end};
    at.key += size;
  }
  return kEnd;
}

}  // namespace slotwise
