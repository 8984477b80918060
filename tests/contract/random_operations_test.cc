// Runs long mixed sequences of operations on table and oracle, for every kind of table, and compares every
// answer.
#include <optional>

#include "kernels/slow_growth.h"
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class RandomOperations : public ContractTest {
 protected:
  // A table drawn at random, mostly unbounded.
  static TableOptions RandomOptions(Random& random) {
    const std::vector<std::uint32_t> dims{1, 2, 3, 4, 8, 9, 16, 17, 31, 64, 100};
    const Combiner combiner = kEveryCombiner[random.Below(kEveryCombiner.size())];
    const OptimizerKind kind = kEveryOptimizer[random.Below(kEveryOptimizer.size())];
    TableOptions options = MakeOptions(random.OneOf(dims), combiner, kind);
    options.optimizer.weight_decay = random.OneIn(2) ? 0.0F : 0.01F;
    options.initializer.seed = random.Bits();
    options.initializer.kind = InitializerKind{static_cast<std::uint8_t>(random.Below(3))};
    options.initializer.mean = random.OneIn(2) ? 0.0F : 0.5F;
    options.initializer.deviation = 0.1F;
    options.initial_rows = random.OneIn(2) ? 0 : random.Below(3000);
    if (random.OneIn(3)) options.max_rows = 3000 + random.Below(1000);
    options.row_dtype = DataType{static_cast<std::uint8_t>(random.Below(3))};
    if (options.row_dtype != DataType::kFloat32 && random.OneIn(3)) options.rounding = Rounding::kNearest;
    return options;
  }

  static Batch RandomShapedBatch(Random& random) {
    const std::vector<BatchShape> shapes{
        {.bags = 64, .max_bag = 1, .distinct_keys = 300},
        {.bags = 100, .max_bag = 8, .distinct_keys = 2000, .hot_percent = 10},
        {.bags = 20, .max_bag = 100, .distinct_keys = 5000, .hot_percent = 10},
        {.bags = 3, .max_bag = 1000, .distinct_keys = 100'000, .hot_percent = 50},
        {.bags = 300, .max_bag = 2, .distinct_keys = 10, .special_percent = 50},
        {.bags = 10, .max_bag = 0},
        {.bags = 1, .max_bag = 3},
        {.bags = 0},
    };
    return RandomBatch(random, random.OneOf(shapes));
  }

  void Run(std::uint64_t seed) {
    SCOPED_TRACE(SeedNote(seed));
    Random random(seed);
    const int ranks = static_cast<int>(random.OneOf(std::vector{1, 1, 2, 3, 8}));
    // Hash tables of a third of the runs are in the middle of their growth for most of the time.
    std::optional<SlowGrowth> slow;
    if (seed % 3 == 0) slow.emplace(1 + seed % 64);
    CheckedTable table(cluster(), RandomOptions(random), ranks);
    for (int i = 0; i < 30 && !HasFailure(); ++i) {
      SCOPED_TRACE("operation " + std::to_string(i));
      Batch batch = RandomShapedBatch(random);
      if (random.OneIn(3)) AddRandomWeights(random, batch);
      const std::uint64_t operation = random.Below(12);
      if (operation < 4) {
        table.PushRandom(batch, random);
      } else if (operation < 6) {
        table.Lookup(batch, LookupMode::kTrain);
      } else if (operation < 9) {
        const DigestSums before = table.shards().Digest();
        table.Lookup(batch, LookupMode::kEval);
        EXPECT_EQ(table.shards().Digest(), before);
      } else if (operation < 10) {
        table.ExpectRowsMatch();
      } else {
        std::vector<std::uint64_t> keys;
        for (const Key key : batch.keys) {
          if (random.OneIn(2)) keys.push_back(Value(key));
        }
        if (operation == 10) {
          table.Erase(keys);
        } else {
          table.ImportRandom(keys, random.OneIn(2), random);
        }
      }
    }
    table.ExpectRowsMatch();
  }
};
SLOTWISE_ON_EVERY_BACKEND(RandomOperations);

TEST_P(RandomOperations, MatchTheOracle) {
  const std::uint64_t runs = OverRanks() ? 20 : 50;
  for (std::uint64_t i = 0; i < runs && !HasFailure(); ++i) {
    Run(Seed(1000) + i);
  }
}

// Two tables on one device, turn by turn: neither sees the other.
TEST_P(RandomOperations, OnTwoTablesOfADeviceMatchTheirOracles) {
  const std::uint64_t seed = Seed(2000);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  CheckedTable narrow(cluster(), MakeOptions(3, Combiner::kMean, OptimizerKind::kAdam), 2);
  CheckedTable wide(cluster(), MakeOptions(70, Combiner::kSum, OptimizerKind::kAdaGrad));
  for (int i = 0; i < 20; ++i) {
    for (CheckedTable* table : {&narrow, &wide}) {
      table->PushRandom(RandomShapedBatch(random), random);
      table->Lookup(RandomShapedBatch(random), LookupMode::kTrain);
    }
  }
  narrow.ExpectRowsMatch();
  wide.ExpectRowsMatch();
}

}  // namespace
}  // namespace slotwise::test
