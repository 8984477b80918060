// Initial values depend on (seed, key, element) alone, and not on batch, order, rank or thread.
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class InitialValues : public ContractTest {};
SLOTWISE_ON_EVERY_BACKEND(InitialValues);

TEST_P(InitialValues, ArePhiloxsForEveryDim) {
  for (const std::uint32_t dim : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33, 64, 100, 128, 130, 4096}) {
    SCOPED_TRACE("dim " + std::to_string(dim));
    CheckedTable table(cluster(), MakeOptions(dim));
    std::vector<std::uint64_t> keys = KeyRange(0, 40);
    keys.insert(keys.end(), SpecialKeys().begin(), SpecialKeys().end());
    table.Lookup(OneKeyABag(keys), LookupMode::kTrain);
    table.ExpectRowsMatch();
  }
}

TEST_P(InitialValues, DependOnTheSeed) {
  for (const std::uint64_t seed : {0ull, 1ull, 0xFFFF'FFFFull, 0x1'0000'0000ull, 0xFFFF'FFFF'FFFF'FFFFull}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TableOptions options = MakeOptions(10);
    options.initializer.seed = seed;
    CheckedTable table(cluster(), options);
    table.Lookup(OneBag(KeyRange(0, 100)), LookupMode::kTrain);
    table.ExpectRowsMatch();
  }
}

TEST_P(InitialValues, StretchOverAnyInterval) {
  using Interval = std::pair<float, float>;
  for (const auto& [low, high] :
       {Interval{0.0F, 1.0F}, {-3.0F, -1.0F}, {0.1F, 0.3F}, {-1e30F, 1e30F}, {0.0F, 1e-40F}}) {
    SCOPED_TRACE("from " + std::to_string(low) + " to " + std::to_string(high));
    TableOptions options = MakeOptions(10);
    options.initializer.low = low;
    options.initializer.high = high;
    CheckedTable table(cluster(), options);
    table.Lookup(OneBag(KeyRange(0, 100)), LookupMode::kTrain);
    table.ExpectRowsMatch();
  }
}

TEST_P(InitialValues, AreAConstantWhenLowIsHigh) {
  for (const float constant : {0.0F, 0.25F, -7.0F}) {
    TableOptions options = MakeOptions(6);
    options.initializer.low = constant;
    options.initializer.high = constant;
    CheckedTable table(cluster(), options);
    table.Lookup(OneBag(KeyRange(0, 50)), LookupMode::kTrain);
    for (const ExportedRow& row : table.shards().Export()) {
      ASSERT_EQ(row.values, std::vector<float>(6, constant));
    }
    table.ExpectRowsMatch();
  }
}

TEST_P(InitialValues, OfAConstantInitializerAreItsMean) {
  for (const float mean : {0.0F, 0.25F, -7.0F, 1e-40F}) {
    TableOptions options = MakeOptions(6, Combiner::kSum, OptimizerKind::kAdam);
    options.initializer = {
        .low = -1, .high = 1, .seed = 3, .kind = InitializerKind::kConstant, .mean = mean, .deviation = 2};
    CheckedTable table(cluster(), options);
    table.Lookup(OneBag(KeyRange(0, 50)), LookupMode::kTrain);
    std::vector<float> expected(18, 0.0F);
    std::fill_n(expected.begin(), 6, mean);
    for (const ExportedRow& row : table.shards().Export()) {
      ASSERT_TRUE(SameBytes(row.values, expected));
    }
    table.ExpectRowsMatch();
  }
}

TEST_P(InitialValues, DoNotDependOnTheOrderInWhichKeysCome) {
  std::vector<std::uint64_t> keys = KeyRange(1000, 500);
  CheckedTable at_once(cluster(), MakeOptions(9));
  ASSERT_TRUE(at_once.Lookup(OneBag(keys), LookupMode::kTrain));

  Random(11).Shuffle(keys);
  CheckedTable one_by_one(cluster(), MakeOptions(9));
  for (const std::uint64_t key : keys) {
    ASSERT_TRUE(one_by_one.Lookup(OneBag({key}), LookupMode::kTrain));
  }
  ExpectSameRows(one_by_one.shards().Export(), at_once.shards().Export());
}

// Every finder of a new key might give it its initial value, and undo what an earlier step did to the row.
TEST_P(InitialValues, AreGivenOnceHoweverOftenAKeyComes) {
  CheckedTable table(cluster(), MakeOptions(8));
  Random random(12);
  const Batch batch = OneBag(std::vector<std::uint64_t>(5000, 77));
  table.PushRandom(batch, random);
  table.Lookup(batch, LookupMode::kTrain);
  table.PushRandom(batch, random);
  table.Lookup(batch, LookupMode::kTrain);
  table.ExpectRowsMatch();
}

TEST_P(InitialValues, OfOptimizerStateAreTheOptions) {
  for (const auto kind : kEveryOptimizer) {
    SCOPED_TRACE(ToString(kind));
    TableOptions options = MakeOptions(5, Combiner::kSum, kind);
    options.optimizer.initial_accumulator = 0.75F;
    CheckedTable table(cluster(), options);
    table.Lookup(OneBag({1, 2, 3}), LookupMode::kTrain);
    for (const ExportedRow& row : table.shards().Export()) {
      EXPECT_EQ(row.values.size(), 5u + StateFloats(kind, 5));
    }
    table.ExpectRowsMatch();
  }
}

}  // namespace
}  // namespace slotwise::test
