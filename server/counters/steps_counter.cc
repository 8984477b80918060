#include "server/counters/steps_counter.h"

#include <algorithm>
#include <bit>

namespace slotwise {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// There is only one writer, so a sum needs no locked instruction.
void Increase(std::atomic<std::uint64_t>& count, std::uint64_t more) {
  count.store(count.load(kRelaxed) + more, kRelaxed);
}

}  // namespace

std::size_t StepsStats::BucketOf(std::uint64_t steps) {
  if (steps == 0) return 0;
  return std::min<std::size_t>(1 + static_cast<std::size_t>(std::bit_width(steps - 1)), kBuckets - 1);
}

void StepsCounter::Count(std::uint64_t steps) {
  Increase(buckets_[StepsStats::BucketOf(steps)], 1);
  Increase(sum_, steps);
}

StepsStats StepsCounter::Read() const {
  StepsStats stats{.sum = sum_.load(kRelaxed)};
  for (std::size_t b = 0; b < buckets_.size(); ++b) stats.buckets[b] = buckets_[b].load(kRelaxed);
  return stats;
}

}  // namespace slotwise
