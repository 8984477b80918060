// Runs engines of several ranks under a seeded scheduler: no order of events breaks an invariant. Runs
// servers that die at any step and come back on other numbers of ranks: no promised update is lost, doubled
// or halved.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/sim/durable_simulation.h"
#include "tests/sim/simulation.h"

namespace slotwise::sim {
namespace {

// Sanitizers are several times slower; `./dev test all` runs the longer forms of tests.
std::uint64_t Seeds([[maybe_unused]] std::uint64_t sanitized, std::uint64_t usual, std::uint64_t most) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return sanitized;
#else
  const char* const forms = std::getenv("SLOTWISE_TESTS");
  return forms != nullptr && std::string_view(forms) == "all" ? most : usual;
#endif
}

// Runs every `shards`-th of the seeds from `first` on, and sums what they came to. `again`: what runs a seed.
template <class Run>
auto SumOf(Run run, const char* again, std::uint64_t first, std::uint64_t seeds, std::uint64_t shards) {
  decltype(run(first, false).outcome) sum;
  for (std::uint64_t seed = first; seed <= seeds; seed += shards) {
    const auto result = run(seed, false);
    EXPECT_EQ(result.failure, "") << result.plan << "\nagain: " << again << " --trace --seed " << seed;
    if (!result.failure.empty()) break;
    sum.Add(result.outcome);
  }
  return sum;
}

template <class Run>
void ExpectTheSameEveryTime(Run run, std::uint64_t seeds) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto first = run(seed, false).outcome;
    const auto again = run(seed, false).outcome;
    EXPECT_EQ(first.trace_hash, again.trace_hash) << "seed " << seed;
    EXPECT_EQ(first.events, again.events) << "seed " << seed;
  }
}

constexpr std::uint64_t kShards = 8;
class Simulated : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Simulated, SeedsBreakNoInvariant) {
  const Outcome sum = SumOf(RunSeed, "./dev sim", GetParam() + 1, Seeds(200, 500, 1000), kShards);
  EXPECT_GT(sum.rounds, sum.seeds);
  EXPECT_GT(sum.full_request_queues, 0U);
  const SharedBufferCounts& shared_buffers = sum.shared_buffers;
  for (const std::uint64_t count : {shared_buffers.answered, shared_buffers.refused, shared_buffers.rewritten,
                                    shared_buffers.cut_off, shared_buffers.left}) {
    EXPECT_GT(count, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Shard, Simulated, testing::Range(std::uint64_t{0}, kShards));

TEST(Simulation, OfASeedIsTheSameEveryTime) { ExpectTheSameEveryTime(RunSeed, 30); }

// The servers' sockets, shared buffers and clients' processes have descriptors.
TEST(Simulation, LeavesNoDescriptorOpen) {
  const auto open = [] {
    const std::filesystem::directory_iterator descriptors("/proc/self/fd");
    return std::distance(begin(descriptors), end(descriptors));
  };
  const auto before = open();
  std::uint64_t calls = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) calls += RunSeed(seed).outcome.shared_buffers.calls;
  EXPECT_GT(calls, 0U);
  EXPECT_EQ(open(), before);
}

TEST(Simulation, OfAnotherSeedIsAnother) {
  EXPECT_NE(RunSeed(1).outcome.trace_hash, RunSeed(2).outcome.trace_hash);
}

constexpr std::uint64_t kDurableShards = 2;
constexpr std::uint64_t kFirstDurable =
    134;  // from here on, few seeds of each shard have all that can happen
class DurableServers : public testing::TestWithParam<std::uint64_t> {};

TEST_P(DurableServers, KeepTheirPromises) {
  const std::uint64_t seeds = Seeds(80, 150, 500);
  const LifeOutcome sum = SumOf(RunDurableSeed, "./dev sim --durable", kFirstDurable + GetParam(),
                                kFirstDurable + seeds - 1, kDurableShards);
  RecordProperty("outcome", Describe(sum));
  EXPECT_GT(sum.recoveries, seeds / kDurableShards);
  for (const std::uint64_t count :
       {sum.from_checkpoints, sum.replayed, sum.deltas, sum.power_failures, sum.disk_failures, sum.refused,
        sum.lost, sum.damages, sum.journal_damages, sum.refused_damages, sum.evicted, sum.expired,
        sum.full}) {
    EXPECT_GT(count, 0U) << Describe(sum);
  }
}

INSTANTIATE_TEST_SUITE_P(Shard, DurableServers, testing::Range(std::uint64_t{0}, kDurableShards));

TEST(DurableSimulation, OfASeedIsTheSameEveryTime) { ExpectTheSameEveryTime(RunDurableSeed, 10); }

}  // namespace
}  // namespace slotwise::sim
