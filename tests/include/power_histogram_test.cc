// Tests how numbers fall into buckets of powers of two, and the quantiles of the buckets.
#include "slotwise/power_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace slotwise {
namespace {

PowerHistogram Of(const std::vector<std::uint64_t>& numbers) {
  PowerHistogram histogram;
  for (const std::uint64_t number : numbers) ++histogram.buckets[PowerHistogram::BucketOf(number)];
  return histogram;
}

TEST(PowerHistogram, BucketsEndBelowPowersOfTwo) {
  EXPECT_EQ(PowerHistogram::BucketOf(0), 0U);
  EXPECT_EQ(PowerHistogram::BucketOf(1), 1U);
  for (std::size_t bucket = 1; bucket < PowerHistogram::kBuckets; ++bucket) {
    EXPECT_EQ(PowerHistogram::BucketOf(PowerHistogram::FirstOf(bucket)), bucket);
    EXPECT_EQ(PowerHistogram::BucketOf(PowerHistogram::BoundOf(bucket)), bucket);
    EXPECT_EQ(PowerHistogram::BoundOf(bucket - 1) + 1, PowerHistogram::FirstOf(bucket));
  }
  EXPECT_EQ(PowerHistogram::BucketOf(std::numeric_limits<std::uint64_t>::max()), 36U);
}

TEST(PowerHistogram, QuantilesAreRoundedUp) {
  EXPECT_EQ(Of({}).quantiles(), Quantiles());
  EXPECT_EQ(Of({0}).quantiles(), (Quantiles{.rows = 1}));
  EXPECT_EQ(Of({5, 9}).quantiles(),
            (Quantiles{.rows = 2, .p0 = 7, .p10 = 7, .p50 = 7, .p90 = 15, .p99 = 15, .p100 = 15}));
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t number = 0; number < 1000; ++number) numbers.push_back(number * number);
  const PowerHistogram squares = Of(numbers);
  for (std::uint64_t percent = 0; percent <= 100; ++percent) {
    const std::uint64_t exact = numbers[std::max<std::uint64_t>(1, percent * 10) - 1];
    EXPECT_GE(squares.Quantile(percent), exact);
    EXPECT_LE(squares.Quantile(percent), 2 * exact);
  }
  EXPECT_EQ(Of({std::numeric_limits<std::uint64_t>::max()}).Quantile(50), (std::uint64_t{1} << 36) - 1);
}

TEST(PowerHistogram, KnowsTheLeastThatIsPossible) {
  EXPECT_EQ(Of({0, 9}).LeastPossible(), 0U);
  EXPECT_EQ(Of({1, 9}).LeastPossible(), 1U);
  EXPECT_EQ(Of({100, 15}).LeastPossible(), 8U);
}

TEST(PowerHistogram, OfEvictedRowsAddUp) {
  EvictedAges ages;
  ages.buckets[2] = 3;
  ages.sum = 7;
  EvictedAges more = ages;
  more += ages;
  EXPECT_EQ(more.buckets[2], 6U);
  EXPECT_EQ(more.sum, 14U);
  EXPECT_NE(more, ages);
}

}  // namespace
}  // namespace slotwise
