// These bodies say into which bucket of a PowerHistogram a row's age falls, or the count of its occurrences.
// Rows that do not count have the bucket kBuckets, which a backend's Histogram counts nowhere.
#ifndef SLOTWISE_KERNELS_BODY_ROW_AGES_H_
#define SLOTWISE_KERNELS_BODY_ROW_AGES_H_

#include <cstdint>

#include "kernels/body/eviction.h"
#include "kernels/body/hash.h"
#include "kernels/body/rows.h"
#include "kernels/eviction_place.h"
#include "kernels/shard.h"
#include "slotwise/power_histogram.h"

namespace slotwise::body {

inline constexpr std::uint32_t kNoBucket = PowerHistogram::kBuckets;

// Returns PowerHistogram::BucketOf(number), also on a device.
SLOTWISE_HD constexpr std::uint32_t BucketOf(std::uint64_t number) {
  const std::uint32_t length = BitLength(number);
  return length < kNoBucket - 1 ? length : kNoBucket - 1;
}

// Returns the bucket of a listed row's age.
struct BucketOfListed {
  ListUpTo list;
  SLOTWISE_HD std::uint32_t operator()(std::uint32_t i) const {
    if (!list(i)) return kNoBucket;
    return BucketOf(list.order.AgeOf(list.scored[list.rows[i]].score));
  }
};

// Returns what EvictedSums::checksum adds up of a listed row, and the row's age.
struct MixListed {
  ListUpTo list;
  SLOTWISE_HD DigestSums operator()(std::uint64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    if (!list(at)) return {0, 0};
    const ScoredKey row = list.scored[list.rows[at]];
    return {Mix64(row.key), list.order.AgeOf(row.score)};
  }
};

// Returns the bucket of any row's age, or of the count of its key's occurrences.
struct BucketOfRow {
  const ScoredKey* scored;
  EvictionOrder order;
  bool of_count = false;
  SLOTWISE_HD std::uint32_t operator()(std::uint32_t i) const {
    const std::uint64_t score = scored[i].score;
    if (score == kNoScore) return kNoBucket;
    return BucketOf(of_count ? order.CountOf(score) : order.AgeOf(score));
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ROW_AGES_H_
