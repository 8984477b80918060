// Engines of several ranks under a scheduler with a seed: whatever the order of events, no invariant is
// broken.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/sim/simulation.h"

namespace slotwise::sim {
namespace {

// Sanitizers are several times slower; `./dev test all` runs the longer forms of tests.
std::uint64_t Seeds() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 200;
#else
  const char* const forms = std::getenv("SLOTWISE_TESTS");
  return forms != nullptr && std::string_view(forms) == "all" ? 1000 : 500;
#endif
}
constexpr std::uint64_t kShards = 8;

std::string Again(std::uint64_t seed) {
  return "again: ./dev sim --seed " + std::to_string(seed) + " --trace";
}

class Simulated : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Simulated, SeedsBreakNoInvariant) {
  const std::uint64_t seeds = Seeds();
  Outcome sum;
  for (std::uint64_t seed = GetParam() + 1; seed <= seeds; seed += kShards) {
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
