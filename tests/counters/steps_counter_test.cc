// Tests the histogram of numbers of steps.
#include "server/counters/steps_counter.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>

namespace slotwise {
namespace {

TEST(StepsCounterTest, ABoundIsTheMostThatCountsInItsBucket) {
  EXPECT_EQ(StepsStats::BoundOf(0), 0U);
  EXPECT_EQ(StepsStats::BoundOf(1), 1U);
  EXPECT_EQ(StepsStats::BoundOf(2), 2U);
  EXPECT_EQ(StepsStats::BoundOf(3), 4U);
  EXPECT_EQ(StepsStats::BoundOf(StepsStats::kBuckets - 2), 4096U);
  for (std::size_t bucket = 0; bucket + 1 < StepsStats::kBuckets; ++bucket) {
    EXPECT_EQ(StepsStats::BucketOf(StepsStats::BoundOf(bucket)), bucket);
    EXPECT_EQ(StepsStats::BucketOf(StepsStats::BoundOf(bucket) + 1), bucket + 1);
  }
}

TEST(StepsCounterTest, CountsAnyNumber) {
  StepsCounter counter;
  EXPECT_EQ(counter.Read(), StepsStats());
  for (const std::uint64_t steps : {0, 0, 1, 2, 3, 4, 5, 4096, 4097}) counter.Count(steps);
  StepsStats expected{.sum = 1 + 2 + 3 + 4 + 5 + 4096 + 4097};
  expected.buckets = {2, 1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1};
  EXPECT_EQ(counter.Read(), expected);
  counter.Count(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(counter.Read().buckets.back(), 2U);
}

}  // namespace
}  // namespace slotwise
