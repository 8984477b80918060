#include "server/counters/duration_counter.h"

#include <algorithm>
#include <cstddef>

namespace slotwise {

void DurationCounter::Count(std::chrono::nanoseconds duration) {
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
  sum_ns_.fetch_add(ns, std::memory_order_relaxed);
  buckets_[DurationStats::BucketOf(ns)].fetch_add(1, std::memory_order_relaxed);
}

DurationStats DurationCounter::Read() const {
  DurationStats stats{.sum_ns = sum_ns_.load(std::memory_order_relaxed)};
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const std::uint64_t count = buckets_[b].load(std::memory_order_relaxed);
    if (count == 0) continue;
    stats.buckets.resize(b + 1);
    stats.buckets[b] = count;
  }
  return stats;
}

}  // namespace slotwise
