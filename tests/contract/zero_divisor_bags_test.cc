// A pushed bag whose divisor is 0 has no effect. Its keys get no rows through it, and a row that occurs only
// in such bags is not touched, whatever its optimizer does with a gradient of 0.
#include <algorithm>
#include <array>
#include <vector>

#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class CancelledBag : public ContractTest {};
SLOTWISE_ON_EVERY_BACKEND(CancelledBag);

constexpr std::array kDividing{Combiner::kMean, Combiner::kSqrtn};

Batch WithWeights(Batch batch, std::vector<float> weights) {
  batch.weights = std::move(weights);
  return batch;
}

// Weights of two keys, for which the combiner's divisor is 0.
std::vector<float> CancellingPair(Combiner combiner) {
  return combiner == Combiner::kMean ? std::vector<float>{0.75F, -0.75F} : std::vector<float>{0.0F, -0.0F};
}

std::vector<float> RowOf(TableShards& table, std::uint64_t key) {
  for (const ExportedRow& row : table.Export()) {
    if (Value(row.key) == key) return row.values;
  }
  return {};
}

template <class Test>
void OnEveryTable(Cluster& cluster, Test test) {
  for (const Combiner combiner : kDividing) {
    for (const OptimizerKind kind : kEveryOptimizer) {
      for (const int ranks : cluster.RanksOf({1, 2, 4})) {
        SCOPED_TRACE(std::string(ToString(combiner)) + ", " + std::string(ToString(kind)) + ", " +
                     std::to_string(ranks) + " ranks");
        TableOptions options = MakeOptions(5, combiner, kind);
        options.optimizer.weight_decay = 0.25F;
        CheckedTable table(cluster, options, ranks);
        test(table, combiner);
      }
    }
  }
}

// FTRL would set the rows to 0, momentum would go on, and weight decay would pull. There are two steps,
// because gradients travel either way.
TEST_P(CancelledBag, LeavesItsRowsAsTheyAre) {
  OnEveryTable(cluster(), [](CheckedTable& table, Combiner combiner) {
    Random random(130);
    table.PushRandom(OneKeyABag({1, 2, 3}), random);
    table.PushRandom(OneKeyABag({1, 2, 3}), random);
    const DigestSums before = table.shards().Digest();
    for (int step = 0; step < 2; ++step) {
      table.PushRandom(WithWeights(Batch({{1, 2}}), CancellingPair(combiner)), random);
      EXPECT_EQ(table.shards().Digest(), before);
    }
    EXPECT_EQ(table.shards().step(), 4u) << "it is a step all the same";
    table.ExpectRowsMatch();
  });
}

TEST_P(CancelledBag, GivesItsKeysNoRows) {
  OnEveryTable(cluster(), [](CheckedTable& table, Combiner combiner) {
    Random random(131);
    const std::vector<float> pair = CancellingPair(combiner);
    for (int step = 0; step < 2; ++step) {
      table.PushRandom(WithWeights(Batch({{1, 2}}), pair), random);
      EXPECT_EQ(table.shards().rows(), 0u);
    }
    for (int step = 0; step < 2; ++step) {
      table.PushRandom(WithWeights(Batch({{1, 2}, {3, 2}, {}, {4}}), {pair[0], pair[1], 1, 2, 3}), random);
      EXPECT_EQ(table.shards().rows(), 3u) << "keys 2, 3 and 4";
      EXPECT_TRUE(RowOf(table.shards(), 1).empty());
    }
    table.ExpectRowsMatch();
  });
}

// The row's other occurrences are what its step is made of, as if the bag were not there.
TEST_P(CancelledBag, AddsNothingToRowsThatOccurElsewhereToo) {
  OnEveryTable(cluster(), [&](CheckedTable& table, Combiner combiner) {
    const std::vector<float> pair = CancellingPair(combiner);
    std::vector<float> gradients(15);
    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = 0.25F * static_cast<float>(i) - 1.0F;
    CheckedTable without(cluster(), table.options());
    for (int step = 0; step < 2; ++step) {
      table.Push(WithWeights(Batch({{7, 8}, {8, 9}, {7}}), {3, 2, pair[0], pair[1], 0.5F}), gradients);
      std::vector<float> others(gradients.begin(), gradients.begin() + 5);
      others.insert(others.end(), gradients.begin() + 10, gradients.end());
      without.Push(WithWeights(Batch({{7, 8}, {7}}), {3, 2, 0.5F}), others);
    }
    table.ExpectRowsMatch();
    EXPECT_EQ(table.shards().Digest(), without.shards().Digest());
  });
}

// Only the whole bag decides: a rank that owns one of the keys sees a weight that is not 0.
TEST_P(CancelledBag, IsJudgedByAllRanksKeys) {
  for (const int ranks : cluster().RanksOf({2, 4, 8})) {
    CheckedTable table(cluster(), MakeOptions(3, Combiner::kMean, OptimizerKind::kFtrl), ranks);
    const std::vector<std::uint64_t> keys = KeyRange(0, 64);
    std::vector<float> weights(64, 1.0F);
    std::fill(weights.begin() + 32, weights.end(), -1.0F);
    Random random(132);
    for (int step = 0; step < 2; ++step) table.PushRandom(WithWeights(OneBag(keys), weights), random);
    EXPECT_EQ(table.shards().rows(), 0u);
    weights[63] = -1.5F;
    for (int step = 0; step < 2; ++step) table.PushRandom(WithWeights(OneBag(keys), weights), random);
    EXPECT_EQ(table.shards().rows(), 64u);
    table.ExpectRowsMatch();
  }
}

TEST_P(CancelledBag, TakesNoRoomInAFullTable) {
  for (const int ranks : cluster().RanksOf({1, 2})) {
    TableOptions options = MakeOptions(2, Combiner::kMean);
    options.max_rows = 2;
    CheckedTable table(cluster(), options, ranks);
    const Batch new_keys_cancel = WithWeights(Batch({{1, 2}, {3, 4, 5, 6}}), {1, 1, 1, -1, 2, -2});
    EXPECT_TRUE(table.Push(new_keys_cancel, {1, 2, 3, 4}));
    EXPECT_TRUE(table.Push(new_keys_cancel, {1, 2, 3, 4}));
    EXPECT_FALSE(table.Push(WithWeights(Batch({{1, 2}, {3, 4, 5, 6}}), {1, 1, 1, -1, 2, -1}), {1, 2, 3, 4}));
    table.ExpectRowsMatch();
  }
}

// A lookup gives absent keys rows, whatever their weights are. Where nothing divides, no bag is cancelled.
TEST_P(CancelledBag, IsABagLikeOthersInALookupAndInASum) {
  for (const Combiner combiner : kDividing) {
    CheckedTable table(cluster(), MakeOptions(2, combiner), 2);
    const Batch batch = WithWeights(Batch({{1, 2}, {3}}), {0.0F, 0.0F, 0.0F});
    table.Lookup(batch, LookupMode::kTrain);
    EXPECT_EQ(table.shards().rows(), 3u);
    table.ExpectRowsMatch();
  }
  CheckedTable sum(cluster(), MakeOptions(2, Combiner::kSum, OptimizerKind::kFtrl), 2);
  sum.Push(WithWeights(Batch({{1, 2}, {3}}), {0.0F, 0.0F, 0.0F}), {1, 2, 3, 4});
  EXPECT_EQ(sum.shards().rows(), 3u);
  sum.ExpectRowsMatch();
}

TEST_P(CancelledBag, IsFoundAmongManyOnAnyNumberOfRanks) {
  const std::uint64_t seed = Seed(133);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (const int ranks : cluster().RanksOf({1, 2, 3, 8})) {
    for (const Combiner combiner : kDividing) {
      for (const OptimizerKind kind : kEveryOptimizer) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::string(ToString(combiner)) + ", " +
                     std::string(ToString(kind)));
        CheckedTable table(cluster(), MakeOptions(4, combiner, kind), ranks);
        for (int step = 0; step < 6; ++step) {
          Batch batch = RandomBatch(random, {.bags = 150, .max_bag = 4, .distinct_keys = 400});
          AddRandomWeights(random, batch);
          table.PushRandom(batch, random);
          table.Lookup(batch, random.OneIn(2) ? LookupMode::kTrain : LookupMode::kEval);
        }
        table.ExpectRowsMatch();
      }
    }
  }
}

}  // namespace
}  // namespace slotwise::test
