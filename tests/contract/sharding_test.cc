// A table that is cut into any number of shards and merged again is the same table.
#include <algorithm>
#include <memory>
#include <vector>

#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

BucketMap RandomBucketMap(std::uint64_t seed, int ranks) {
  Random random(seed);
  BucketMap map{};
  for (auto& owner : map) {
    owner = static_cast<std::uint16_t>(random.Below(ranks));
  }
  return map;
}

class Shards : public ContractTest {
 protected:
  // Runs the same random pushes and lookups on any table of the same options, against its oracle.
  static void Train(CheckedTable& table) {
    Random random(71);
    for (int step = 0; step < 4; ++step) {
      const Batch batch = RandomBatch(random, {.bags = 120, .max_bag = 12, .distinct_keys = 800});
      table.Lookup(batch, LookupMode::kTrain);
      table.PushRandom(batch, random);
    }
    table.ExpectRowsMatch();
  }
};
SLOTWISE_ON_EVERY_BACKEND(Shards);

TEST_P(Shards, MergeIntoTheSameTableWhateverTheirNumber) {
  for (const Combiner combiner : kEveryCombiner) {
    for (const auto kind : kEveryOptimizer) {
      const TableOptions options = MakeOptions(6, combiner, kind);
      CheckedTable whole(device(), options);
      Train(whole);
      const std::vector<ExportedRow> rows = whole.shards().Export();
      for (const int ranks : cluster().RanksOf({2, 4, 8})) {
        SCOPED_TRACE(std::string(ToString(kind)) + " on " + std::to_string(ranks) + " shards");
        CheckedTable parts(cluster(), options, ranks);
        Train(parts);
        EXPECT_EQ(parts.shards().Digest(), whole.shards().Digest());
        ExpectSameRows(parts.shards().Export(), rows);
      }
    }
  }
}

TEST_P(Shards, PoolTheSameOutputFromWholeNumbersWhateverTheirNumber) {
  for (const Combiner combiner : kEveryCombiner) {
    const auto output_of = [&](CheckedTable& table) {
      Random random(72);
      for (int step = 0; step < 3; ++step) {
        // One key a bag: a mean's gradients stay whole numbers too.
        const Batch batch = RandomBatch(random, {.bags = 600, .max_bag = 1, .distinct_keys = 500});
        table.Push(batch, IntegerGradients(random, std::size_t{batch.bags()} * 6));
      }
      const Batch batch = RandomBatch(random, {.bags = 200, .max_bag = 30, .distinct_keys = 600});
      table.Lookup(batch, LookupMode::kEval);
      return *table.shards().Lookup(batch, LookupMode::kTrain);
    };
    CheckedTable whole(device(), MakeIntegerOptions(6, combiner));
    const std::vector<float> output_of_one = output_of(whole);
    for (const int ranks : cluster().RanksOf({2, 4, 8})) {
      SCOPED_TRACE(std::string(ToString(combiner)) + " on " + std::to_string(ranks) + " shards");
      CheckedTable parts(cluster(), MakeIntegerOptions(6, combiner), ranks);
      EXPECT_TRUE(SameBytes(output_of(parts), output_of_one, 6));
    }
  }
}

TEST_P(Shards, HoldExactlyTheKeysThatTheBucketMapGivesThem) {
  BucketMap rank_0_has_nothing = EvenBucketMap(3);
  std::replace(rank_0_has_nothing.begin(), rank_0_has_nothing.end(), std::uint16_t{0}, std::uint16_t{2});
  BucketMap only_rank_1{};
  only_rank_1.fill(1);
  for (const BucketMap& owners :
       {EvenBucketMap(3), RandomBucketMap(74, 3), RandomBucketMap(75, 2), rank_0_has_nothing, only_rank_1}) {
    CheckedTable table(device(), MakeOptions(4, Combiner::kMean, OptimizerKind::kAdaGrad), 3, owners);
    Random random(76);
    table.Lookup(OneBag(KeyRange(0, 5000)), LookupMode::kTrain);
    table.PushRandom(OneKeyABag(SpecialKeys()), random);
    table.Lookup(OneKeyABag(KeyRange(4000, 2000)), LookupMode::kEval);
    for (int rank = 0; rank < 3; ++rank) {
      for (const ExportedRow& row : ExportOf(table.shards().shard(rank), table.options())) {
        ASSERT_EQ(owners[OracleBucket(Value(row.key))], rank) << "key " << Value(row.key);
      }
    }
    table.ExpectRowsMatch();
  }
}

TEST_P(Shards, OfARandomBucketMapMergeIntoTheSameTable) {
  const TableOptions options = MakeOptions(5, Combiner::kSum, OptimizerKind::kAdam);
  CheckedTable whole(device(), options);
  Train(whole);
  for (const int ranks : {2, 5, 8}) {
    const std::uint64_t seed = Seed(77 + ranks);
    SCOPED_TRACE(SeedNote(seed));
    CheckedTable parts(cluster(), options, ranks, RandomBucketMap(seed, ranks));
    Train(parts);
    EXPECT_EQ(parts.shards().Digest(), whole.shards().Digest());
    ExpectSameRows(parts.shards().Export(), whole.shards().Export());
  }
}

TEST_P(Shards, OfDevicesOfTheirOwnMergeIntoTheSameTable) {
  const TableOptions options = MakeOptions(5, Combiner::kMean, OptimizerKind::kAdam);
  const auto second = AnotherDevice();
  MultiShard apart({&device(), second.get()}, options, 4, EvenBucketMap(4));
  CheckedTable together(device(), options, 4);
  Random random(78);
  for (int step = 0; step < 3; ++step) {
    const Batch batch = RandomBatch(random, {.bags = 100});
    const std::vector<float> gradients = RandomGradients(random, std::size_t{batch.bags()} * 5);
    together.Push(batch, gradients);
    ASSERT_TRUE(apart.Push(batch, gradients).ok());
    EXPECT_TRUE(SameBytes(*apart.Lookup(batch, LookupMode::kEval),
                          *together.shards().Lookup(batch, LookupMode::kEval), 5));
  }
  ExpectSameRows(apart.Export(), together.shards().Export());
}

// Places in hash tables show in no answer, so ranks need not have one secret, nor a server that starts again
// the one it had.
TEST_P(Shards, AnswerTheSameWhateverTheirSecrets) {
  const HashSecret secrets[] = {kTestSecret, HashSecret(0, 0), HashSecret(~std::uint64_t{0}, 0x1234'5678)};
  for (const int ranks : {1, 4}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    TableOptions options = MakeOptions(5, Combiner::kMean, OptimizerKind::kAdam);
    options.max_rows = 5000;
    std::vector<std::unique_ptr<MultiShard>> tables;
    for (const HashSecret& secret : secrets) {
      tables.push_back(std::make_unique<MultiShard>(std::vector<Device*>{&device()}, options, ranks,
                                                    EvenBucketMap(ranks), DataType::kFloat32, secret));
    }
    Random random(75);
    for (int step = 0; step < 12; ++step) {
      const Batch batch = RandomBatch(random, {.bags = 400, .max_bag = 6, .distinct_keys = 6000});
      const std::vector<float> gradients = RandomGradients(random, std::size_t{batch.bags()} * options.dim);
      std::vector<std::uint64_t> erased(100);
      for (std::uint64_t& key : erased) key = random.Below(6000);
      const Status pushed = tables[0]->Push(batch, gradients);
      const auto pooled = tables[0]->Lookup(batch, LookupMode::kEval);
      const std::uint64_t gone = tables[0]->Erase(erased);
      for (std::size_t t = 1; t < tables.size(); ++t) {
        ASSERT_EQ(tables[t]->Push(batch, gradients), pushed);
        EXPECT_TRUE(SameBytes(*tables[t]->Lookup(batch, LookupMode::kEval), *pooled));
        EXPECT_EQ(tables[t]->Erase(erased), gone);
        ASSERT_EQ(tables[t]->Digest(), tables[0]->Digest());
      }
    }
    EXPECT_GT(tables[0]->rows(), 3000u);
    for (std::size_t t = 1; t < tables.size(); ++t) {
      ExpectSameRows(tables[t]->Export(), tables[0]->Export());
    }
  }
}

}  // namespace
}  // namespace slotwise::test
