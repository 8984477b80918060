// Servers that die at any step and come back on other numbers of ranks, under a scheduler with a seed:
// nothing that was promised is lost, doubled or halved.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/sim/durable_simulation.h"

namespace slotwise::sim {
namespace {

// Sanitizers are several times slower; `./dev test all` runs the longer forms of tests.
std::uint64_t Seeds() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 80;
#else
  const char* const forms = std::getenv("SLOTWISE_TESTS");
  return forms != nullptr && std::string_view(forms) == "all" ? 500 : 150;
#endif
}
constexpr std::uint64_t kShards = 2;

std::string Again(std::uint64_t seed) {
  return "again: slotwise-sim --durable --seed " + std::to_string(seed) + " --trace";
}

class DurableServers : public testing::TestWithParam<std::uint64_t> {};

TEST_P(DurableServers, KeepTheirPromises) {
  const std::uint64_t seeds = Seeds();
  LifeOutcome sum;
  for (std::uint64_t seed = GetParam() + 1; seed <= seeds; seed += kShards) {
    const DurableResult result = RunDurableSeed(seed);
    ASSERT_EQ(result.failure, "") << result.plan << "\n" << Again(seed);
    sum.Add(result.outcome);
  }
  RecordProperty("outcome", Describe(sum));
  EXPECT_GT(sum.recoveries, seeds / kShards);
  EXPECT_GT(sum.from_checkpoints, 0U);
  EXPECT_GT(sum.replayed, 0U);
  EXPECT_GT(sum.deltas, 0U);
  EXPECT_GT(sum.power_failures, 0U);
  EXPECT_GT(sum.disk_failures, 0U);
  EXPECT_GT(sum.refused, 0U);
  EXPECT_GT(sum.lost, 0U);
  EXPECT_GT(sum.damages, 0U);
  EXPECT_GT(sum.journal_damages, 0U);
  EXPECT_GT(sum.refused_damages, 0U);
}

INSTANTIATE_TEST_SUITE_P(Shard, DurableServers, testing::Range(std::uint64_t{0}, kShards));

TEST(DurableSimulation, OfASeedIsTheSameEveryTime) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const DurableResult first = RunDurableSeed(seed);
    const DurableResult again = RunDurableSeed(seed);
    EXPECT_EQ(first.outcome.trace_hash, again.outcome.trace_hash) << Again(seed);
    EXPECT_EQ(first.outcome.events, again.outcome.events) << Again(seed);
  }
}

}  // namespace
}  // namespace slotwise::sim
