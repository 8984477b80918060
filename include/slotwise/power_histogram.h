// PowerHistogram counts whole numbers by powers of two: the ages of rows, or how often their keys occurred.
// EvictedAges also has the numbers' sum, and RowAges has what a table's living rows say.
//
// The age of a row is the number of steps that its table has taken since the step in which a push touched the
// row last (docs/semantics.md).
// Thread-safety: plain values.
#ifndef SLOTWISE_POWER_HISTOGRAM_H_
#define SLOTWISE_POWER_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace slotwise {

// Numbers that say how others are spread: q of a hundred of the others are at most as large as `pq`.
struct Quantiles {
  std::uint64_t rows = 0;  // how many numbers there are; 0: the others are 0 too
  std::uint64_t p0 = 0;    // the lowest
  std::uint64_t p10 = 0;
  std::uint64_t p50 = 0;
  std::uint64_t p90 = 0;
  std::uint64_t p99 = 0;
  std::uint64_t p100 = 0;  // the highest

  friend bool operator==(const Quantiles&, const Quantiles&) = default;
};

struct PowerHistogram {
  // Bucket 0 counts zeros. Bucket b counts numbers from 2^(b-1) to 2^b - 1; the last bucket also counts all
  // larger ones.
  static constexpr std::size_t kBuckets = 37;
  // Returns the smallest number of a bucket. REQUIRES: bucket < kBuckets.
  static constexpr std::uint64_t FirstOf(std::size_t bucket) {
    return bucket == 0 ? 0 : std::uint64_t{1} << (bucket - 1);
  }
  // Returns the largest number of a bucket, if it is not the last one. REQUIRES: bucket < kBuckets.
  static constexpr std::uint64_t BoundOf(std::size_t bucket) { return (std::uint64_t{1} << bucket) - 1; }
  static constexpr std::size_t BucketOf(std::uint64_t number) {
    return std::min(static_cast<std::size_t>(std::bit_width(number)), kBuckets - 1);
  }

  std::uint64_t count() const { return std::accumulate(buckets.begin(), buckets.end(), std::uint64_t{0}); }
  // Returns the smallest number that the first bucket with a number can have. The smallest number is at least
  // that, and less than twice that. REQUIRES: count() > 0.
  std::uint64_t LeastPossible() const {
    const auto first = std::ranges::find_if(buckets, [](std::uint64_t in) { return in > 0; });
    return FirstOf(static_cast<std::size_t>(first - buckets.begin()));
  }
  // Returns the bound of the bucket in which the number lies that `percent` of a hundred numbers are not
  // above: the number, rounded up to one less than a power of two, at most 2^36 - 1. REQUIRES: count() > 0;
  // percent <= 100.
  std::uint64_t Quantile(std::uint64_t percent) const {
    const std::uint64_t place = std::max<std::uint64_t>(1, (count() * percent + 99) / 100);
    std::size_t bucket = 0;
    for (std::uint64_t up_to = buckets[0]; up_to < place; up_to += buckets[bucket]) ++bucket;
    return BoundOf(bucket);
  }
  // Returns the quantiles, each rounded up so.
  Quantiles quantiles() const {
    if (count() == 0) return {};
    return {.rows = count(),
            .p0 = Quantile(0),
            .p10 = Quantile(10),
            .p50 = Quantile(50),
            .p90 = Quantile(90),
            .p99 = Quantile(99),
            .p100 = Quantile(100)};
  }
  friend bool operator==(const PowerHistogram&, const PowerHistogram&) = default;

  std::array<std::uint64_t, kBuckets> buckets = {};
};

// The ages of rows that were evicted.
struct EvictedAges : PowerHistogram {
  EvictedAges& operator+=(const EvictedAges& more) {
    for (std::size_t b = 0; b < kBuckets; ++b) buckets[b] += more.buckets[b];
    sum += more.sum;
    return *this;
  }
  friend bool operator==(const EvictedAges&, const EvictedAges&) = default;

  std::uint64_t sum = 0;
};

// The ages of a table's rows, and the counts of tables whose scores count occurrences.
struct RowAges {
  PowerHistogram ages;
  PowerHistogram counts;  // as they order evictions now
  friend bool operator==(const RowAges&, const RowAges&) = default;
};

}  // namespace slotwise

#endif  // SLOTWISE_POWER_HISTOGRAM_H_
