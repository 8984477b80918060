// Tests the mistakes of other systems that semantics.md lists, and the batches closest to them.
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class Trap : public ContractTest {};
SLOTWISE_ON_EVERY_BACKEND(Trap);

// Every combination of combiner and optimizer, on one shard and on four, or on the ranks there are.
template <class Test>
void OnEveryTable(Cluster& cluster, Test test) {
  for (const Combiner combiner : kEveryCombiner) {
    for (const auto kind : kEveryOptimizer) {
      for (const int ranks : cluster.RanksOf({1, 4})) {
        SCOPED_TRACE(std::string(ToString(combiner)) + ", " + std::string(ToString(kind)) + ", " +
                     std::to_string(ranks) + " ranks");
        CheckedTable table(cluster, MakeOptions(5, combiner, kind), ranks);
        test(table);
        table.ExpectRowsMatch();
      }
    }
  }
}

TEST_P(Trap, ZeroSamples) {
  OnEveryTable(cluster(), [](CheckedTable& table) {
    Random random(31);
    for (int i = 0; i < 2; ++i) {  // on an empty table, then on one with rows
      table.Lookup(Batch(), LookupMode::kEval);
      table.Lookup(Batch(), LookupMode::kTrain);
      table.PushRandom(Batch(), random);
      table.PushRandom(OneBag({1, 2, 3}), random);
    }
  });
}

// Arrays without elements may have no address either.
TEST_P(Trap, ZeroSamplesWithoutArrays) {
  MultiShard table({&device()}, MakeOptions(5, Combiner::kMean), 1, EvenBucketMap(1));
  Shard& shard = table.shard(0);
  const std::vector<std::uint32_t> zero{0};
  DeviceArray<std::uint32_t> offsets(device(), std::span<const std::uint32_t>(zero));
  auto found = shard.PrepareFind({{}, offsets.span()});
  ASSERT_TRUE(found.ok()) << found.status().message();
  found->Pool(nullptr);
  shard.DivideBags(device().WorkStream(), offsets.span(), nullptr, nullptr);
  auto prepared = shard.PrepareInsert({{}, offsets.span()}).Finish();
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  EXPECT_EQ(prepared->new_rows().count, 0u);
  EXPECT_EQ(prepared->ExactNewRows(), 0u);
  InsertedBatch inserted = std::move(*prepared).Insert();
  inserted.Pool(nullptr);
  std::move(inserted).Update(nullptr, {.learning_rate = 1, .adam_rate = 1});
  EXPECT_EQ(shard.Usage().rows, 0u);
}

TEST_P(Trap, ABatchOfOnlyEmptyBags) {
  OnEveryTable(cluster(), [](CheckedTable& table) {
    Random random(32);
    Batch empty;
    for (int bag = 0; bag < 1000; ++bag) {
      empty.AddBag(std::vector<std::uint64_t>{});
    }
    for (int i = 0; i < 2; ++i) {
      table.Lookup(empty, LookupMode::kEval);
      table.Lookup(empty, LookupMode::kTrain);
      table.PushRandom(empty, random);
      table.PushRandom(OneBag({1, 2, 3}), random);
    }
  });
}

TEST_P(Trap, OneSample) {
  OnEveryTable(cluster(), [](CheckedTable& table) {
    Random random(33);
    for (int i = 0; i < 3; ++i) {
      table.Lookup(OneBag({9}), LookupMode::kTrain);
      table.PushRandom(OneBag({9}), random);
      table.Lookup(OneBag({9}), LookupMode::kEval);
    }
  });
}

TEST_P(Trap, ABatchWhoseKeysAllLieOnOneRank) {
  for (const std::uint64_t bucket : {0ull, 4095ull}) {
    CheckedTable table(cluster(), MakeOptions(6, Combiner::kMean, OptimizerKind::kAdaGrad), 4);
    std::vector<std::uint64_t> keys;
    for (std::uint64_t i = 0; i < 100; ++i) {
      keys.push_back(KeyOfHash((bucket << 52) | (i * 0x12345)));
    }
    Random random(34);
    table.Lookup(OneKeyABag(keys), LookupMode::kTrain);
    table.PushRandom(OneKeyABag(keys), random);
    table.Lookup(OneBag(keys), LookupMode::kEval);
    table.ExpectRowsMatch();
  }
}

// The count of the whole bag divides, not the part of it that a rank holds; and each rank's own offsets
// count.
TEST_P(Trap, AMeanOverRanksDividesByTheWholeBag) {
  for (const int ranks : cluster().RanksOf({2, 4, 8})) {
    CheckedTable table(cluster(), MakeIntegerOptions(2, Combiner::kMean), ranks);
    table.Lookup(OneBag(KeyRange(0, 64)), LookupMode::kTrain);
    const Result<std::vector<float>> pooled =
        table.shards().Lookup(Batch({{0, 1, 2, 3, 4, 5, 6}, {0}, {1, 1}, {}, {9, 8, 7}}), LookupMode::kEval);
    // Every row is 3, so every mean is.
    EXPECT_EQ(*pooled, (std::vector<float>{3, 3, 3, 3, 3, 3, 0, 0, 3, 3}));
    table.PushRandom(Batch({{0, 1, 2, 3, 4, 5, 6}, {0}, {1, 1}, {}, {9, 8, 7}}),
                     *std::make_unique<Random>(35));
    table.ExpectRowsMatch();
  }
}

// Dividing by the root of a rank's own part would give 3·√n of that part.
TEST_P(Trap, ASqrtnOverRanksDividesByTheRootOfTheWholeBag) {
  for (const int ranks : cluster().RanksOf({1, 2, 4, 8})) {
    CheckedTable table(cluster(), MakeIntegerOptions(1, Combiner::kSqrtn), ranks);
    table.Lookup(OneBag(KeyRange(0, 64)), LookupMode::kTrain);
    const Batch batch({{0, 1, 2, 3}, {0}, {1, 1, 2, 1000}, {}, {0, 1, 2, 3, 4, 5, 6, 7, 8}});
    const Result<std::vector<float>> pooled = table.shards().Lookup(batch, LookupMode::kEval);
    EXPECT_EQ(*pooled, (std::vector<float>{12.0F / 2, 3, 9.0F / 2, 0, 27.0F / 3}));
    Random random(43);
    table.PushRandom(batch, random);
    table.ExpectRowsMatch();
  }
}

TEST_P(Trap, EveryKeyIsLegalAndNoneStandsForAnother) {
  OnEveryTable(cluster(), [](CheckedTable& table) {
    const Batch special = OneKeyABag(SpecialKeys());
    Random random(36);
    table.Lookup(special, LookupMode::kEval);
    table.Lookup(OneKeyABag({0}), LookupMode::kTrain);
    table.Lookup(special, LookupMode::kEval);
    table.Lookup(special, LookupMode::kTrain);
    EXPECT_EQ(table.shards().rows(), SpecialKeys().size());
    for (int step = 0; step < 3; ++step) {
      table.PushRandom(special, random);
      table.Lookup(special, LookupMode::kEval);
      table.Lookup(OneBag(SpecialKeys()), LookupMode::kEval);
    }
  });
}

TEST_P(Trap, EachSpecialKeyAloneIsFoundAndNothingElseIs) {
  for (const std::uint64_t key : SpecialKeys()) {
    SCOPED_TRACE("key " + std::to_string(key));
    CheckedTable table(cluster(), MakeOptions(3));
    Random random(37);
    table.PushRandom(OneBag({key, key}), random);
    EXPECT_EQ(table.shards().rows(), 1u);
    table.Lookup(OneKeyABag(SpecialKeys()), LookupMode::kEval);
    table.ExpectRowsMatch();
  }
}

TEST_P(Trap, SpecialKeysSurviveGrowth) {
  CheckedTable table(cluster(), MakeOptions(3, Combiner::kSum, OptimizerKind::kAdam), 2);
  Random random(38);
  table.PushRandom(OneKeyABag(SpecialKeys()), random);
  table.Lookup(OneBag(KeyRange(1 << 20, 20'000)), LookupMode::kTrain);
  table.PushRandom(OneKeyABag(SpecialKeys()), random);
  table.ExpectRowsMatch();
}

TEST_P(Trap, AKeyThatEvalDidNotFindDoesNotShiftLaterRowsOrGradients) {
  OnEveryTable(cluster(), [](CheckedTable& table) {
    Random random(39);
    const Batch known = Batch({{1, 2}, {3}, {4, 5, 6}});
    const Batch with_absent = Batch({{100, 1, 101, 2}, {102}, {3}, {4, 103, 5, 6}, {104}});
    table.PushRandom(known, random);
    table.Lookup(with_absent, LookupMode::kEval);
    table.PushRandom(known, random);  // after EVAL left a batch with holes behind
    table.Lookup(with_absent, LookupMode::kEval);
  });
}

TEST_P(Trap, APushOfAbsentKeysInsertsThemAndThenMovesThem) {
  OnEveryTable(cluster(), [](CheckedTable& table) {
    Random random(40);
    table.PushRandom(Batch({{1, 2}, {3}}), random);
    table.PushRandom(Batch({{100, 1, 101, 2}, {102}, {3}, {4, 103, 100}}), random);
    EXPECT_EQ(table.shards().rows(), 8u);
  });
}

TEST_P(Trap, OneKeyIsATenthOfAllKeys) {
  OnEveryTable(cluster(), [](CheckedTable& table) {
    Random random(41);
    const BatchShape shape{.bags = 500, .max_bag = 12, .distinct_keys = 5000, .hot_percent = 10};
    for (int step = 0; step < 2; ++step) {
      const Batch batch = RandomBatch(random, shape);
      table.Lookup(batch, LookupMode::kTrain);
      table.PushRandom(batch, random);
    }
  });
}

TEST_P(Trap, EveryKeyOfABatchIsTheSame) {
  OnEveryTable(cluster(), [](CheckedTable& table) {
    Random random(42);
    Batch batch = OneKeyABag(std::vector<std::uint64_t>(700, 5));
    batch.AddBag(std::vector<std::uint64_t>(900, 5));
    table.PushRandom(batch, random);
    table.PushRandom(batch, random);
    EXPECT_EQ(table.shards().rows(), 1u);
  });
}

}  // namespace
}  // namespace slotwise::test
