// The number of threads never changes a byte of a result.
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class Threads : public testing::Test {
 protected:
  void SetUp() override {
    if (OverRanks()) GTEST_SKIP() << "this is about one process";
  }
};

// Large enough that work is cut into pieces, with new keys, hot keys and special keys in every batch.
TEST_F(Threads, OfAnyNumberGiveTheSameBytes) {
  const std::uint64_t seed = Seed(110);
  SCOPED_TRACE(SeedNote(seed));
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kRowWiseAdaGrad}) {
    std::vector<std::vector<float>> outputs_of_one;
    std::vector<ExportedRow> rows_of_one;
    DigestSums digest_of_one;
    for (const int threads : {1, 2, 7}) {
      SCOPED_TRACE(std::to_string(threads) + " threads");
      const auto device = MakeCpuDevice(threads);
      MultiShard table({device.get()}, MakeOptions(12, Combiner::kMean, kind), 2, EvenBucketMap(2));
      Random random(seed);
      std::vector<std::vector<float>> outputs;
      for (int step = 0; step < 3; ++step) {
        const Batch batch = RandomBatch(random, {.bags = 4000, .max_bag = 20, .distinct_keys = 20'000});
        outputs.push_back(*table.Lookup(batch, LookupMode::kTrain));
        ASSERT_TRUE(table.Push(batch, RandomGradients(random, std::size_t{batch.bags()} * 12)).ok());
        outputs.push_back(*table.Lookup(batch, LookupMode::kEval));
      }
      if (threads == 1) {
        outputs_of_one = outputs;
        rows_of_one = table.Export();
        digest_of_one = table.Digest();
        continue;
      }
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        EXPECT_TRUE(SameBytes(outputs[i], outputs_of_one[i], 12)) << "in lookup " << i;
      }
      ExpectSameRows(table.Export(), rows_of_one);
      EXPECT_EQ(table.Digest(), digest_of_one);
    }
  }
}

// The same batch of new keys again and again into fresh tables: a race in find-or-insert gets its chances.
TEST_F(Threads, ThatRaceForTheSameNewKeysGiveEachOneRow) {
  const auto device = MakeCpuDevice(7);
  Random random(111);
  Batch batch;
  for (int bag = 0; bag < 5000; ++bag) {
    batch.AddBag(std::vector{random.Below(50), random.Below(3), random.Below(50'000)});
  }
  const std::vector<float> gradients = RandomGradients(random, std::size_t{batch.bags()} * 4);
  Oracle oracle(MakeOptions(4));
  ASSERT_TRUE(oracle.Push(batch, gradients));
  const std::vector<ExportedRow> expected = ExportOf(oracle);
  for (int round = 0; round < 20; ++round) {
    MultiShard table({device.get()}, MakeOptions(4), 1, EvenBucketMap(1));
    ASSERT_TRUE(table.Push(batch, gradients).ok());
    ExpectSameRows(table.Export(), expected);
    ASSERT_FALSE(HasFailure()) << "in round " << round;
  }
}

TEST_F(Threads, AreAsManyAsTheProcessMayUseUnlessToldOtherwise) {
  const auto device = MakeCpuDevice(0);
  CheckedTable table(*device, MakeOptions(8));
  Random random(112);
  table.PushRandom(RandomBatch(random, {.bags = 1000}), random);
  table.ExpectRowsMatch();
}

}  // namespace
}  // namespace slotwise::test
