// A lookup pools rows bag by bag, in key order. TRAIN inserts absent keys; EVAL never does.
#include <cmath>
#include <set>

#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"

namespace slotwise::test {
namespace {

class Lookup : public ContractTest {
 protected:
  // A table whose rows have long left their initial values behind.
  std::unique_ptr<CheckedTable> TrainedTable(const TableOptions& options) {
    return Trained(std::make_unique<CheckedTable>(cluster(), options));
  }
  // The same, of one shard that tests may look into.
  std::unique_ptr<CheckedTable> TrainedShard(const TableOptions& options) {
    return Trained(std::make_unique<CheckedTable>(device(), options));
  }

 private:
  static std::unique_ptr<CheckedTable> Trained(std::unique_ptr<CheckedTable> table) {
    Random random(21);
    for (int step = 0; step < 3; ++step) {
      table->PushRandom(RandomBatch(random, {.bags = 100, .max_bag = 6, .distinct_keys = 300}), random);
    }
    return table;
  }
};
SLOTWISE_ON_EVERY_BACKEND(Lookup);

TEST_P(Lookup, PoolsBagsOfEveryDimAndCombiner) {
  for (const Combiner combiner : kEveryCombiner) {
    for (const std::uint32_t dim : {1, 3, 8, 9, 16, 17, 64, 100, 128, 130}) {
      const std::uint64_t seed = Seed(100 + dim);
      SCOPED_TRACE(std::string(ToString(combiner)) + " of dim " + std::to_string(dim) + ", " +
                   SeedNote(seed));
      Random random(seed);
      const auto table = TrainedTable(MakeOptions(dim, combiner));
      table->Lookup(RandomBatch(random, {.bags = 60, .max_bag = 10, .distinct_keys = 400}),
                    LookupMode::kEval);
      table->Lookup(RandomBatch(random, {.bags = 60, .max_bag = 10, .distinct_keys = 400}),
                    LookupMode::kTrain);
      table->ExpectRowsMatch();
    }
  }
}

TEST_P(Lookup, PoolsBagsOfEveryLengthFrom0To100) {
  for (const Combiner combiner : kEveryCombiner) {
    const auto table = TrainedTable(MakeOptions(17, combiner));
    Random random(22);
    Batch batch;
    for (std::uint64_t length = 0; length <= 100; ++length) {
      std::vector<std::uint64_t> bag(length);
      for (auto& key : bag) {
        key = random.Below(300);
      }
      batch.AddBag(bag);
    }
    table->Lookup(batch, LookupMode::kEval);
    table->Lookup(batch, LookupMode::kTrain);
  }
}

TEST_P(Lookup, PoolsOneHugeBagInKeyOrder) {
  for (const Combiner combiner : kEveryCombiner) {
    const auto table = TrainedTable(MakeOptions(9, combiner));
    Random random(23);
    Batch batch;
    batch.AddBag(std::vector<std::uint64_t>{1});
    std::vector<std::uint64_t> huge(200'000);
    for (auto& key : huge) {
      key = random.Below(1000);
    }
    batch.AddBag(huge);
    batch.AddBag(std::vector<std::uint64_t>{});
    batch.AddBag(std::vector<std::uint64_t>{2, 3});
    table->Lookup(batch, LookupMode::kEval);
    table->Lookup(batch, LookupMode::kTrain);
  }
}

TEST_P(Lookup, AddsAKeyAsOftenAsItsBagRepeatsIt) {
  for (const Combiner combiner : kEveryCombiner) {
    const auto table = TrainedTable(MakeOptions(8, combiner));
    table->Lookup(Batch({{5, 5}, {5, 6, 5}, {6, 5, 5}, {5}, {9, 9, 9, 9, 9, 9, 9}}), LookupMode::kTrain);
    table->Lookup(Batch({{5, 5, 5, 5, 5}, std::initializer_list<std::uint64_t>{}, {7, 5, 7}}),
                  LookupMode::kEval);
  }
}

TEST_P(Lookup, GivesZerosForEmptyBagsAndNeverMinusZero) {
  for (const Combiner combiner : kEveryCombiner) {
    TableOptions options = MakeOptions(4, combiner);
    options.initializer.low = -0.0F;  // adding -0 to +0 gives +0
    options.initializer.high = -0.0F;
    CheckedTable table(cluster(), options);
    table.Lookup(Batch({{}, {1}, {}, {1, 2}, {}}), LookupMode::kTrain);
    const auto pooled = table.shards().Lookup(Batch({{}, {1}, {3}}), LookupMode::kEval);
    EXPECT_TRUE(SameBytes(*pooled, std::vector<float>(12, +0.0F), 4));
  }
}

TEST_P(Lookup, InEvalModeInsertsNothingAndCountsAnAbsentKeyAsZeros) {
  for (const Combiner combiner : kEveryCombiner) {
    const auto table = TrainedTable(MakeOptions(8, combiner));
    const DigestSums before = table->shards().Digest();
    const std::uint64_t rows = table->shards().rows();
    // Keys from 10'000 on are absent; in a mean they still count.
    table->Lookup(Batch({{10'000}, {1, 10'001, 2}, {10'002, 10'002, 1}, {}, {10'003, 3}}), LookupMode::kEval);
    EXPECT_EQ(table->shards().rows(), rows);
    EXPECT_EQ(table->shards().Digest(), before);
  }
}

TEST_P(Lookup, InEvalModeOfAnEmptyTableGivesZeros) {
  CheckedTable table(cluster(), MakeOptions(16));
  table.Lookup(OneKeyABag(SpecialKeys()), LookupMode::kEval);
  table.Lookup(OneBag(KeyRange(0, 10'000)), LookupMode::kEval);
  EXPECT_EQ(table.shards().rows(), 0u);
  EXPECT_EQ(table.shards().Digest(), (DigestSums{0, 0}));
}

TEST_P(Lookup, InTrainModeInsertsEachAbsentKeyOnce) {
  CheckedTable table(cluster(), MakeOptions(8));
  table.Lookup(Batch({{1, 2, 1}, {2, 3}, {1}}), LookupMode::kTrain);
  EXPECT_EQ(table.shards().rows(), 3u);
  table.Lookup(Batch({{3, 4}}), LookupMode::kTrain);
  EXPECT_EQ(table.shards().rows(), 4u);
  table.ExpectRowsMatch();
}

TEST_P(Lookup, OfRowsThatAreThereChangesNothing) {
  const auto table = TrainedTable(MakeOptions(8, Combiner::kSum, OptimizerKind::kAdam));
  const Batch batch = OneBag({1, 2, 3, 4, 5});
  table->Lookup(batch, LookupMode::kTrain);
  const DigestSums before = table->shards().Digest();
  table->Lookup(batch, LookupMode::kTrain);
  table->Lookup(batch, LookupMode::kEval);
  EXPECT_EQ(table->shards().Digest(), before);
}

TEST_P(Lookup, PreparesOverABatchThatWasPreparedAndLeft) {
  const auto table = TrainedShard(MakeOptions(8));
  Shard& shard = table->shards().shard(0);
  const DigestSums before = shard.Digest();
  Random random(24);
  for (int i = 0; i < 20; ++i) {
    const Batch left = RandomBatch(random, {.bags = 50, .max_bag = 40, .distinct_keys = 100'000});
    DeviceBatch on_device(device(), left);
    auto prepared = shard.PrepareInsert(on_device.View()).Finish();
    ASSERT_TRUE(prepared.ok());
    if (i % 2 == 0) prepared->ExactNewRows();
    ASSERT_EQ(shard.Digest(), before) << "PrepareInsert or ExactNewRows changed the table";
    ASSERT_EQ(shard.Usage().rows, table->oracle().rows().size());
    table->Lookup(RandomBatch(random, {}), LookupMode::kEval);
  }
  table->ExpectRowsMatch();
}

TEST_P(Lookup, PoolsARangeOfBagsAsAmongAllOfThem) {
  const std::uint64_t seed = Seed(25);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (const std::uint32_t dim : {3, 64}) {
    const auto table = TrainedShard(MakeOptions(dim));
    Shard& shard = table->shards().shard(0);
    for (const bool weighted : {false, true}) {
      Batch batch = RandomBatch(random, {.bags = 70, .max_bag = 6, .distinct_keys = 400});
      if (weighted) AddRandomWeights(random, batch);
      DeviceBatch on_device(device(), batch);
      auto found = shard.PrepareFind(on_device.View());
      ASSERT_TRUE(found.ok());
      DeviceArray<float> all(device(), std::vector<float>(std::size_t{70} * dim));
      found->Pool({all.data(), DataType::kFloat32});
      const std::vector<float> pooled = all.Download();
      for (const auto& [first, last] : {std::pair{0U, 70U}, {0U, 1U}, {69U, 70U}, {13U, 37U}}) {
        DeviceArray<float> some(device(), std::vector<float>(std::size_t{last - first} * dim));
        found->Pool({some.data(), DataType::kFloat32}, {first, last});
        const std::vector<float> expected(pooled.begin() + first * dim, pooled.begin() + last * dim);
        EXPECT_TRUE(SameBytes(some.Download(), expected, dim)) << first << " to " << last;
      }
    }
  }
}

TEST_P(Lookup, SaysExactlyHowManyRowsInsertWouldAdd) {
  const auto table = TrainedShard(MakeOptions(8));
  Shard& shard = table->shards().shard(0);
  Batch batch = OneBag({1, 2, 3});  // there
  batch.AddBag(std::vector<std::uint64_t>(1000, 20'000));
  batch.AddBag(std::vector<std::uint64_t>{20'001, 1, 20'002, 20'001, 20'000});
  const std::set<Key> keys_of_batch(batch.keys.begin(), batch.keys.end());
  std::uint64_t absent = 0;
  for (const Key key : keys_of_batch) {
    absent += table->oracle().rows().contains(Value(key)) ? 0 : 1;
  }
  DeviceBatch on_device(device(), batch);
  auto prepared = shard.PrepareInsert(on_device.View()).Finish();
  ASSERT_TRUE(prepared.ok());
  EXPECT_GE(prepared->new_rows().count, absent);
  EXPECT_EQ(prepared->ExactNewRows(), absent);
  EXPECT_EQ(prepared->ExactNewRows(), absent) << "asked a second time";
  const std::uint64_t before = shard.Usage().rows;
  std::move(*prepared).Insert();
  EXPECT_EQ(shard.Usage().rows, before + absent);
}

// A bag's size is the difference of its offsets, wherever the first of them begins.
TEST_P(Lookup, DividesByTheSizeOfTheBagWhoseOffsetsItIsGiven) {
  MultiShard mean({&device()}, MakeOptions(3, Combiner::kMean), 1, EvenBucketMap(1));
  MultiShard sum({&device()}, MakeOptions(3, Combiner::kSum), 1, EvenBucketMap(1));
  MultiShard sqrtn({&device()}, MakeOptions(3, Combiner::kSqrtn), 1, EvenBucketMap(1));
  const std::vector<std::uint32_t> offsets{10, 13, 13, 14, 21};
  const std::vector<float> values{1, 2, 3, 0, 0, 0, 7, 8, 9, 1, 1e-30F, 100};
  std::vector<float> expected = values;
  std::vector<float> expected_of_sqrtn = values;
  for (const int i : {0, 1, 2}) {
    expected[i] /= 3.0F;
    expected[9 + i] /= 7.0F;
    expected_of_sqrtn[i] /= std::sqrt(3.0F);
    expected_of_sqrtn[9 + i] /= std::sqrt(7.0F);
  }
  DeviceArray<std::uint32_t> device_offsets(device(), std::span<const std::uint32_t>(offsets));
  DeviceArray<float> divided(device(), std::span<const float>(values));
  mean.shard(0).DivideBags(device().WorkStream(), device_offsets.span(), nullptr, divided.data());
  EXPECT_TRUE(SameBytes(divided.Download(), expected, 3));
  DeviceArray<float> by_root(device(), std::span<const float>(values));
  sqrtn.shard(0).DivideBags(device().WorkStream(), device_offsets.span(), nullptr, by_root.data());
  EXPECT_TRUE(SameBytes(by_root.Download(), expected_of_sqrtn, 3));
  DeviceArray<float> untouched(device(), std::span<const float>(values));
  sum.shard(0).DivideBags(device().WorkStream(), device_offsets.span(), nullptr, untouched.data());
  EXPECT_TRUE(SameBytes(untouched.Download(), values, 3));
}

}  // namespace
}  // namespace slotwise::test
