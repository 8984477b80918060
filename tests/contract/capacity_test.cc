// A full table refuses the whole batch, changes nothing, and continues to serve.
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class AFullTable : public ContractTest {
 protected:
  static constexpr std::uint64_t kMaxRows = 10;

  static TableOptions SmallOptions(OptimizerKind kind = OptimizerKind::kSgd,
                                   std::uint64_t max_rows = kMaxRows) {
    TableOptions options = MakeOptions(7, Combiner::kMean, kind);
    options.max_rows = max_rows;
    return options;
  }

  // Both ways to bring in `batch` are refused and leave no trace.
  static void ExpectRefused(CheckedTable& table, const Batch& batch) {
    const DigestSums digest = table.shards().Digest();
    const std::vector<ExportedRow> rows = table.shards().Export();
    const std::uint64_t step = table.shards().step();
    const auto pooled = table.shards().Lookup(batch, LookupMode::kEval);
    Random random(50);
    EXPECT_FALSE(table.Lookup(batch, LookupMode::kTrain));
    EXPECT_FALSE(table.PushRandom(batch, random));
    EXPECT_EQ(table.shards().Digest(), digest);
    EXPECT_EQ(table.shards().rows(), rows.size());
    EXPECT_EQ(table.shards().step(), step) << "a refused push counts no step";
    ExpectSameRows(table.shards().Export(), rows);
    const auto pooled_after = table.shards().Lookup(batch, LookupMode::kEval);
    EXPECT_TRUE(SameBytes(*pooled_after, *pooled)) << "in an EVAL lookup after the refusal";
  }
};
SLOTWISE_ON_EVERY_BACKEND(AFullTable);

TEST_P(AFullTable, RefusesTheWholeBatchAndStaysAsItWas) {
  for (const auto kind : kEveryOptimizer) {
    for (const int ranks : cluster().RanksOf({1, 2, 4})) {
      SCOPED_TRACE(std::string(ToString(kind)) + ", " + std::to_string(ranks) + " ranks");
      CheckedTable table(cluster(), SmallOptions(kind), ranks);
      Random random(51);
      EXPECT_TRUE(table.PushRandom(OneKeyABag(KeyRange(0, 8)), random));
      ExpectRefused(table, Batch({{1, 2, 100}, {}, {101, 102, 3}}));
      ExpectRefused(table, OneBag(KeyRange(1000, 5000)));
      EXPECT_TRUE(table.PushRandom(OneKeyABag({0, 1, 100, 101}), random)) << "two more fit exactly";
      ExpectRefused(table, Batch({{102}}));
      EXPECT_TRUE(table.PushRandom(OneKeyABag({100, 0, 7}), random)) << "no new key among these";
      EXPECT_TRUE(table.Lookup(OneBag({100, 0, 7}), LookupMode::kTrain));
      EXPECT_TRUE(table.Lookup(Batch({{100, 102, 7}, {103}}), LookupMode::kEval));
      table.ExpectRowsMatch();
    }
  }
}

TEST_P(AFullTable, MayBeFilledExactly) {
  for (const std::uint64_t max_rows : {1, 2, 3, 7, 8, 15, 16, 17, 64, 1000, 1024, 4096}) {
    for (const int ranks : cluster().RanksOf({1, 4})) {
      SCOPED_TRACE("max_rows " + std::to_string(max_rows) + ", " + std::to_string(ranks) + " ranks");
      CheckedTable table(cluster(), SmallOptions(OptimizerKind::kSgd, max_rows), ranks);
      EXPECT_TRUE(table.Lookup(OneBag(KeyRange(5, max_rows)), LookupMode::kTrain));
      EXPECT_EQ(table.shards().rows(), max_rows);
      // A search for what is not there must end, though no row is left.
      table.Lookup(OneBag(KeyRange(5 + max_rows, 3000)), LookupMode::kEval);
      EXPECT_FALSE(table.Lookup(OneBag(KeyRange(5, max_rows + 1)), LookupMode::kTrain));
      table.ExpectRowsMatch();
    }
  }
}

TEST_P(AFullTable, FillsOneKeyAtATime) {
  CheckedTable table(cluster(), SmallOptions(OptimizerKind::kAdam, 200), 2);
  Random random(52);
  for (std::uint64_t key = 0; key < 200; ++key) {
    ASSERT_TRUE(table.PushRandom(OneBag({key}), random)) << "key " << key;
  }
  ExpectRefused(table, OneBag({200}));
  table.ExpectRowsMatch();
}

TEST_P(AFullTable, CountsAKeyThatABatchRepeatsOnce) {
  for (const int ranks : cluster().RanksOf({1, 2, 4})) {
    CheckedTable table(cluster(), SmallOptions(), ranks);
    Random random(53);
    EXPECT_TRUE(table.Lookup(OneBag(KeyRange(0, 9)), LookupMode::kTrain));
    Batch repeating = OneKeyABag(std::vector<std::uint64_t>(100, 9));
    repeating.AddBag(std::vector<std::uint64_t>(100, 9));
    EXPECT_TRUE(table.PushRandom(repeating, random)) << "one row is left, and this needs one";
    EXPECT_EQ(table.shards().rows(), kMaxRows);
    EXPECT_TRUE(table.PushRandom(OneBag(std::vector<std::uint64_t>(100'000, 9)), random))
        << "and this needs none";
    table.ExpectRowsMatch();
  }
}

TEST_P(AFullTable, RefusesTheFirstBatchOfAll) {
  CheckedTable table(cluster(), SmallOptions());
  ExpectRefused(table, OneBag(KeyRange(0, kMaxRows + 1)));
  ExpectRefused(table, OneBag(KeyRange(0, 100'000)));
  EXPECT_TRUE(table.Lookup(OneBag(KeyRange(0, kMaxRows)), LookupMode::kTrain));
  table.ExpectRowsMatch();
}

TEST_P(AFullTable, MayHoldOneRowForOneRankAndManyForAnother) {
  // All keys on one of four ranks: the bound is the table's, not a quarter of it a rank.
  CheckedTable table(device(), SmallOptions(), 4);
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < kMaxRows; ++i) {
    keys.push_back(KeyOfHash(i));
  }
  EXPECT_TRUE(table.Lookup(OneBag(keys), LookupMode::kTrain));
  EXPECT_EQ(table.shards().shard(0).Usage().rows, kMaxRows);
  ExpectRefused(table, OneBag({KeyOfHash(0xFFFF'FFFF'FFFF'FFFF)}));
}

TEST_P(AFullTable, IsRefusedAndFilledInAnyOrder) {
  const std::uint64_t seed = Seed(54);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  CheckedTable table(cluster(), SmallOptions(OptimizerKind::kAdaGrad, 300), 3);
  int refused = 0;
  for (int i = 0; i < 150; ++i) {
    const Batch batch = RandomBatch(
        random, {.bags = 10, .max_bag = 6, .distinct_keys = 320, .hot_percent = 20, .special_percent = 1});
    const bool taken =
        random.OneIn(2) ? table.Lookup(batch, LookupMode::kTrain) : table.PushRandom(batch, random);
    refused += taken ? 0 : 1;
  }
  EXPECT_GT(refused, 10);
  EXPECT_GT(table.shards().rows(), 250u);
  table.ExpectRowsMatch();
}

}  // namespace
}  // namespace slotwise::test
