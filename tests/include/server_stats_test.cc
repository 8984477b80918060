// Tests histograms of durations, and differences of readings.
#include "slotwise/server_stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace slotwise {
namespace {

DurationStats StatsOf(const std::vector<std::uint64_t>& durations) {
  DurationStats stats;
  stats.buckets.resize(DurationStats::kBuckets);
  for (const std::uint64_t ns : durations) {
    stats.sum_ns += ns;
    ++stats.buckets[DurationStats::BucketOf(ns)];
  }
  return stats;
}

TEST(DurationStats, BucketsFollowEachOtherWithoutAGap) {
  for (std::size_t bucket = 0; bucket + 1 < DurationStats::kBuckets; ++bucket) {
    const std::uint64_t end = DurationStats::FirstOf(bucket + 1);
    ASSERT_EQ(DurationStats::BucketOf(DurationStats::FirstOf(bucket)), bucket);
    ASSERT_EQ(DurationStats::BucketOf(end - 1), bucket);
    ASSERT_EQ(DurationStats::BucketOf(end), bucket + 1);
    ASSERT_LE(end - DurationStats::FirstOf(bucket), std::max<std::uint64_t>(1, end / 5));
  }
  EXPECT_EQ(DurationStats::BucketOf(std::numeric_limits<std::uint64_t>::max()), DurationStats::kBuckets - 1);
}

TEST(DurationStats, QuantilesAreThoseOfTheDurationsToWithinAQuarter) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> micros(5, 2);
  std::vector<std::uint64_t> durations(10'000);
  for (std::uint64_t& ns : durations) ns = static_cast<std::uint64_t>(1000 * micros(random));
  const DurationStats stats = StatsOf(durations);
  std::ranges::sort(durations);
  for (const double q : {0.01, 0.25, 0.5, 0.9, 0.99, 1.0}) {
    const auto place = static_cast<std::size_t>(std::ceil(q * static_cast<double>(durations.size()))) - 1;
    const auto exact = static_cast<double>(durations[place]);
    EXPECT_GE(stats.Quantile(q), exact * 0.8) << q;
    EXPECT_LE(stats.Quantile(q), exact * 1.25) << q;
  }
  EXPECT_EQ(stats.count(), durations.size());
}

TEST(DurationStats, OneOutlierIsTheLastQuantileAndNoOther) {
  std::vector<std::uint64_t> durations(999, 1000);
  durations.push_back(50'000'000);
  const DurationStats stats = StatsOf(durations);
  EXPECT_NEAR(stats.Quantile(0.5), 1000, 150);
  EXPECT_NEAR(stats.Quantile(0.99), 1000, 150);
  EXPECT_GT(stats.Quantile(0.9999), 40e6);
  EXPECT_DOUBLE_EQ(stats.Mean(), 999e3 / 1000 + 50e3);
}

TEST(DurationStats, NothingIsCountedInTheBeginning) {
  EXPECT_EQ(DurationStats().count(), 0U);
  EXPECT_EQ(DurationStats().Mean(), 0);
  EXPECT_EQ(DurationStats().Quantile(0.5), 0);
}

RankStats Reading(std::uint64_t instance, std::uint64_t calls) {
  RankStats stats{.rank = 1, .instance = instance, .uptime_ns = 1000 * calls, .rounds = 2 * calls};
  stats.lookups = {.calls = calls,
                   .samples = 3 * calls,
                   .keys = 4 * calls,
                   .bytes_in = 5 * calls,
                   .bytes_out = 6 * calls,
                   .latency = StatsOf(std::vector<std::uint64_t>(calls, 100))};
  for (DurationStats& stage : stats.lookups.stages) stage = stats.lookups.latency;
  stats.pushes = stats.lookups;
  stats.pushes.refusals["UNAVAILABLE"] = calls;
  stats.queue_bytes = calls;
  return stats;
}

TEST(RankStats, TheDifferenceOfTwoReadingsIsWhatCameBetweenThem) {
  RankStats expected = Reading(9, 5);
  expected.queue_bytes = 12;  // as of now
  EXPECT_EQ(Reading(9, 12).Since(Reading(9, 7)), expected);
  RankStats nothing = Reading(9, 12).Since(Reading(9, 12));
  EXPECT_EQ(nothing.lookups.latency.count(), 0U);
  EXPECT_TRUE(nothing.pushes.refusals.empty()) << "not even a code with none";
}

TEST(RankStats, EarlierReadingsMayHaveFewerBuckets) {
  RankStats before = Reading(9, 7);
  before.lookups.latency = {};
  const RankStats since = Reading(9, 12).Since(before);
  EXPECT_EQ(since.lookups.latency, Reading(9, 12).lookups.latency);
}

TEST(RankStats, AfterARestartAllIsNew) {
  EXPECT_EQ(Reading(10, 3).Since(Reading(9, 7)), Reading(10, 3));
  EXPECT_EQ(Reading(10, 30).Since(Reading(9, 7)), Reading(10, 30)) << "more was counted than before it";
  EXPECT_EQ(Reading(9, 3).Since(RankStats()), Reading(9, 3));
}

TEST(CallStats, RanksAddUp) {
  CallStats sum;
  sum.Add(Reading(9, 3).pushes);
  sum.Add(Reading(9, 4).pushes);
  EXPECT_EQ(sum, Reading(9, 7).pushes);
}

}  // namespace
}  // namespace slotwise
