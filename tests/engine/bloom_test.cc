// A table with a Bloom counter gives rows to the keys that the oracle's filter admits, whatever ranks' parts
// bring the keys. The ranks are those that mpirun starts.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/body/bloom_counter.h"
#include "kernels/body/hash.h"
#include "tests/engine/running_engine.h"
#include "tests/support/oracle.h"

namespace slotwise::test {
namespace {

std::unique_ptr<Collective> Ranks() { return LaunchedByMpi() ? MakeMpiCollective() : MakeSoloCollective(); }

// Returns keys of four buckets, of which each of four ranks owns one, so that few blocks count them.
std::vector<std::uint64_t> CrowdedKeys(std::size_t count) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 1; keys.size() < count; ++i)
    keys.push_back(body::InverseOfMix64((500 + 1024 * (i % 4)) << 52 | OracleMix64(i) >> 12));
  return keys;
}

TEST(BloomCounter, AdmitsWhatTheOracleDoesOnAnyRanks) {
  constexpr std::uint64_t kSeed = 20261129;
  RecordProperty("seed", std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  const std::unique_ptr<Collective> tests = Ranks();  // not the engine's
  const EnginePlace place{Ranks(), MakeCpuDevice(1)};
  RunningEngine ranks(place, Ranks());
  const auto size = static_cast<std::uint32_t>(ranks.collective().size());
  const std::vector<std::uint64_t> crowded = CrowdedKeys(900);
  for (const std::uint64_t threshold : {5, 17, 40}) {
    SCOPED_TRACE(threshold);
    TableOptions options;
    options.name = TableName("of_" + std::to_string(threshold));
    options.dim = 4;
    options.optimizer.learning_rate = 1;
    options.initializer = {.kind = InitializerKind::kConstant, .mean = 1000};
    options.max_rows = 60;
    options.eviction.score = ScoreKind::kStep;
    options.admission = {.kind = AdmissionKind::kFrequency,
                         .threshold = threshold,
                         .counter = CounterKind::kBloom,
                         .counter_mib = 1};
    const TableId table = ranks.Create(options);
    Oracle oracle(options);
    for (std::uint64_t number = 1; number <= 40; ++number) {
      std::vector<std::uint64_t> keys(1 + random() % 50), all;
      const std::uint64_t first = 15 * number;
      for (std::uint64_t& key : keys) key = crowded[first + random() % 100 * (random() % 100) / 100];
      if (number % 2 == 0) keys.insert(keys.end(), 5, crowded[number / 20]);
      for (std::uint32_t rank = 0; rank < size; ++rank) all.insert(all.end(), keys.begin(), keys.end());
      StepId step{.session = 7, .number = number};
      step.parts = size;
      step.part = static_cast<std::uint32_t>(Value(ranks.collective().rank()));
      const auto pushed = ranks.Push(table, step, UnitBags(keys), std::vector<float>(keys.size() * 4, 1.0F));
      ASSERT_EQ(pushed.ok(), oracle.Push(OneKeyABag(all), std::vector<float>(all.size() * 4, 1.0F)))
          << pushed.status().message();
      const auto found = ranks.Lookup(table, UnitBags(crowded), LookupMode::kEval);
      ASSERT_TRUE(found.ok());
      EXPECT_EQ(*found, *oracle.Lookup(OneKeyABag(crowded), LookupMode::kEval)) << number;
      const TableSummary summary = ranks.Summarize(table);
      EXPECT_EQ(summary.counter_blocks, oracle.blocks().size());
      EXPECT_EQ(summary.evicted_rows, oracle.evicted_rows());
      ASSERT_FALSE(HasFailure()) << number;
    }
    EXPECT_GT(oracle.rows().size(), 0U);
    EXPECT_GT(oracle.refused_keys(), 0U);
    EXPECT_EQ(ranks.Summarize(table).candidates, 0U);
    // A key of a client's that is also a block's key takes no block away.
    std::vector<std::uint64_t> blocks;
    for (const std::uint64_t key : crowded) blocks.push_back(Value(body::BlockOf(Key{key}, 4)));
    EXPECT_EQ(ranks.Erase(table, blocks), 0U);
    EXPECT_EQ(ranks.Summarize(table).counter_blocks, oracle.blocks().size());
  }
  std::array<std::uint64_t, 1> all_are_done{0};
  tests->AllReduceSum(all_are_done);
}

}  // namespace
}  // namespace slotwise::test
