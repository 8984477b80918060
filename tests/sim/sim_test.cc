// Engines of several ranks under a scheduler with a seed: whatever the order of events, no invariant is
// broken.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>

#include "tests/sim/simulation.h"

namespace slotwise::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 200;  // they are several times slower
#else
constexpr std::uint64_t kSeeds = 1000;
#endif
constexpr std::uint64_t kShards = 8;

std::string Again(std::uint64_t seed) {
  return "again: ./dev sim --seed " + std::to_string(seed) + " --trace";
}

class Simulated : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Simulated, SeedsBreakNoInvariant) {
  Outcome sum;
  for (std::uint64_t seed = GetParam() + 1; seed <= kSeeds; seed += kShards) {
    const SeedResult result = RunSeed(seed);
    ASSERT_EQ(result.failure, "") << result.plan << "\n" << Again(seed);
    sum.Add(result.outcome);
  }
  EXPECT_GT(sum.rounds, sum.seeds);
  EXPECT_GT(sum.full_inboxes, 0U);
  const ArenaCounts& arenas = sum.arenas;
  for (const std::uint64_t count :
       {arenas.answered, arenas.refused, arenas.rewritten, arenas.cut_off, arenas.left}) {
    EXPECT_GT(count, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Shard, Simulated, testing::Range(std::uint64_t{0}, kShards));

TEST(Simulation, OfASeedIsTheSameEveryTime) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const SeedResult first = RunSeed(seed);
    const SeedResult again = RunSeed(seed);
    EXPECT_EQ(first.outcome.trace_hash, again.outcome.trace_hash) << Again(seed);
    EXPECT_EQ(first.outcome.events, again.outcome.events) << Again(seed);
  }
}

// The servers' sockets, arenas and clients' processes have descriptors.
TEST(Simulation, LeavesNoDescriptorOpen) {
  const auto open = [] {
    const std::filesystem::directory_iterator descriptors("/proc/self/fd");
    return std::distance(begin(descriptors), end(descriptors));
  };
  const auto before = open();
  std::uint64_t calls = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) calls += RunSeed(seed).outcome.arenas.calls;
  EXPECT_GT(calls, 0U);
  EXPECT_EQ(open(), before);
}

TEST(Simulation, OfAnotherSeedIsAnother) {
  EXPECT_NE(RunSeed(1).outcome.trace_hash, RunSeed(2).outcome.trace_hash);
}

}  // namespace
}  // namespace slotwise::sim
