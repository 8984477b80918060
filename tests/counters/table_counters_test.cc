// Tests a rank's counts of a table.
#include "server/counters/table_counters.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace slotwise {
namespace {

TEST(TableCountersTest, RowsThatAreThereDidNotCome) {
  TableCounters counters("ads", 100);
  counters.Begin({.rows = 40, .cells = 64, .bytes = 7, .steps = 3, .all_bags = 1, .owned_bags = 2});
  const TableStats stats = counters.Read();
  EXPECT_EQ(stats.name, "ads");
  EXPECT_EQ(stats.max_rows, 100U);
  EXPECT_EQ(stats.state.rows, 40U);
  EXPECT_EQ(stats.state.cells, 64U);
  EXPECT_EQ(stats.state.bytes, 7U);
  EXPECT_EQ(stats.state.steps, 3U);
  EXPECT_EQ(stats.state.all_bags, 1U);
  EXPECT_EQ(stats.state.owned_bags, 2U);
  EXPECT_EQ(stats.new_rows, 0U);
  EXPECT_EQ(stats.erased_rows, 0U);
}

TEST(TableCountersTest, CountsRowsThatComeAndGo) {
  TableCounters counters("ads", 100);
  counters.Begin({.rows = 10});
  for (const std::uint64_t rows : {15, 15, 12, 20, 0, 1}) counters.Note({.rows = rows});
  const TableStats stats = counters.Read();
  EXPECT_EQ(stats.state.rows, 1U);
  EXPECT_EQ(stats.new_rows, 5U + 8 + 1);
  EXPECT_EQ(stats.erased_rows, 3U + 20);
}

// A round may evict rows that it has made itself, before its state is noted.
TEST(TableCountersTest, CountsEvictedRowsBesideThoseThatComeAndGo) {
  TableCounters counters("ads", 100);
  counters.CountEvicted(25);
  counters.Note({.rows = 95});
  EXPECT_EQ(counters.Read().new_rows, 120U);
  counters.CountEvicted(5);
  counters.CountExpired(2);
  EXPECT_EQ(counters.Read().state.rows, 95U);
  counters.Note({.rows = 91});
  counters.Note({.rows = 90});
  const TableStats stats = counters.Read();
  EXPECT_EQ(stats.new_rows, 123U);
  EXPECT_EQ(stats.erased_rows, 1U);
  EXPECT_EQ(stats.evicted_rows, 30U);
  EXPECT_EQ(stats.expired_rows, 2U);
}

TEST(TableCountersTest, CountsTheAgesOfEvictedRows) {
  TableCounters counters("ads", 100);
  EXPECT_EQ(counters.Read().evicted_ages, EvictedAges());
  EXPECT_FALSE(counters.Read().youngest_evicted.has_value()) << "none was evicted";
  EvictedAges ages;
  ages.buckets[3] = 2;
  ages.sum = 11;
  counters.CountEvictedAges(ages, 4);
  EXPECT_EQ(counters.Read().evicted_ages, ages);
  EXPECT_EQ(counters.Read().youngest_evicted, 4U);
  counters.CountEvictedAges({}, 0);
  EXPECT_EQ(counters.Read().evicted_ages, ages) << "those of the other rank do not count here";
  EXPECT_EQ(counters.Read().youngest_evicted, 0U);
  counters.CountEvictedAges(ages, 4);
  counters.Begin({.rows = 40});
  EXPECT_EQ(counters.Read().evicted_ages.buckets[3], 4U);
  EXPECT_EQ(counters.Read().evicted_ages.sum, 22U);
}

TEST(TableCountersTest, CountsKeysAndRowsOfStepsSinceItBegan) {
  TableCounters counters("ads", 100);
  counters.Begin({.step_keys = 70, .step_rows = 30});
  EXPECT_EQ(counters.Read().state.step_keys, 0U);
  EXPECT_EQ(counters.Read().state.step_rows, 0U);
  counters.Note({.step_keys = 75, .step_rows = 33});
  counters.Note({.step_keys = 85, .step_rows = 34});
  EXPECT_EQ(counters.Read().state.step_keys, 15U);
  EXPECT_EQ(counters.Read().state.step_rows, 4U);
}

TEST(TableCountersTest, HasTheProbesOfSearchesSinceItBegan) {
  ProbeLengths probes;
  for (const std::uint64_t pairs : {1, 1, 7}) probes.Count(pairs);
  TableCounters counters("ads", 100);
  counters.Begin({.probes = probes});
  EXPECT_EQ(counters.Read().state.probes, ProbeLengths{});
  ProbeLengths since;
  for (const std::uint64_t pairs : {1, 2, 7, 5000}) {
    probes.Count(pairs);
    since.Count(pairs);
    counters.Note({.probes = probes});
    EXPECT_EQ(counters.Read().state.probes, since);
  }
  counters.Note({.probes = probes});
  EXPECT_EQ(counters.Read().state.probes, since);
}

TEST(TableCountersTest, CountsPushesThatAreNotFinite) {
  TableCounters counters("ads", 100);
  EXPECT_EQ(counters.Read().non_finite_pushes, 0U);
  counters.CountNonFinite();
  counters.CountNonFinite();
  EXPECT_EQ(counters.Read().non_finite_pushes, 2U);
}

TEST(TableCountersTest, CountsGradientsAndStaleness) {
  TableCounters counters("ads", 100);
  EXPECT_EQ(counters.Read().gradients, SquareSum());
  counters.CountGradients({.squares = 1.5, .numbers = 3});
  counters.CountGradients({.squares = 0.25, .numbers = 2});
  EXPECT_EQ(counters.Read().gradients, (SquareSum{.squares = 1.75, .numbers = 5}));
  for (const std::uint64_t steps : {0, 3, 3}) counters.CountStaleness(steps);
  EXPECT_EQ(counters.Read().staleness.sum, 6U);
  EXPECT_EQ(counters.Read().staleness.buckets[0], 1U);
  EXPECT_EQ(counters.Read().staleness.buckets[3], 2U);
}

TEST(TableCountersTest, TheSumOfGradientsStaysFinite) {
  constexpr double kMost = std::numeric_limits<double>::max();
  TableCounters counters("ads", 100);
  for (int i = 0; i < 3; ++i) counters.CountGradients({.squares = kMost, .numbers = 1});
  EXPECT_EQ(counters.Read().gradients, (SquareSum{.squares = kMost, .numbers = 3}));
}

TEST(TableCountersTest, SamplesKeys) {
  TableCounters counters("ads", 100);
  counters.SampleKeys(std::vector<Key>(100 * HotKeys::kDistance, Key{5}));
  EXPECT_NEAR(static_cast<double>(counters.Read().hot_keys.sampled), 100, 20);
  EXPECT_EQ(counters.Read().hot_keys.ShareOf(1), 1);
}

TEST(TableCountersTest, CountsLookupsAndPushesApart) {
  TableCounters counters("ads", 100);
  counters.CountLookups({.samples = 1, .keys = 2});
  counters.CountLookups({.samples = 10, .keys = 20});
  counters.CountPushes({.samples = 100, .keys = 200});
  counters.CountPushes({});
  EXPECT_EQ(counters.Read().lookups, (BatchCounts{11, 22}));
  EXPECT_EQ(counters.Read().pushes, (BatchCounts{100, 200}));
}

}  // namespace
}  // namespace slotwise
