// A row counts w times; mean divides by Σ w and sqrtn by √Σ w². Gradients are weighted and divided alike.
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class Weights : public ContractTest {};
SLOTWISE_ON_EVERY_BACKEND(Weights);

Batch WithWeights(Batch batch, std::vector<float> weights) {
  batch.weights = std::move(weights);
  return batch;
}

// Numbers that a pencil can check: rows are 3, SGD subtracts the gradient as it is.
TEST_P(Weights, MultiplyRowsAndDivideByTheirSum) {
  const Batch batch = WithWeights(Batch({{1, 2}, {1}, {}}), {2.0F, 6.0F, 0.5F});
  const auto lookup = [&](Combiner combiner) {
    return *CheckedTable(cluster(), MakeIntegerOptions(1, combiner))
                .shards()
                .Lookup(batch, LookupMode::kTrain);
  };
  EXPECT_EQ(lookup(Combiner::kSum), (std::vector<float>{24.0F, 1.5F, 0.0F}));
  EXPECT_EQ(lookup(Combiner::kMean), (std::vector<float>{3.0F, 3.0F, 0.0F}));
  const Batch squares = WithWeights(Batch({{1, 2}}), {3.0F, 4.0F});
  CheckedTable sqrtn(cluster(), MakeIntegerOptions(1, Combiner::kSqrtn));
  EXPECT_EQ(*sqrtn.shards().Lookup(squares, LookupMode::kTrain), std::vector<float>{21.0F / 5.0F});
}

TEST_P(Weights, MultiplyGradientsOnTheirWayBack) {
  CheckedTable table(cluster(), MakeIntegerOptions(1, Combiner::kMean));
  table.Push(WithWeights(Batch({{1, 2}, {1}}), {2.0F, 6.0F, 0.5F}), {8.0F, 4.0F});
  const std::vector<ExportedRow> rows = table.shards().Export();
  EXPECT_EQ(rows[0].values[0], 3.0F - (8.0F * 2.0F / 8.0F + 4.0F * 0.5F / 0.5F));
  EXPECT_EQ(rows[1].values[0], 3.0F - 8.0F * 6.0F / 8.0F);
  table.ExpectRowsMatch();
}

TEST_P(Weights, ThatCancelOutMakeZerosAndMoveNothing) {
  for (const Combiner combiner : {Combiner::kMean, Combiner::kSqrtn}) {
    CheckedTable table(cluster(), MakeIntegerOptions(2, combiner));
    const std::vector<float> weights =
        combiner == Combiner::kMean ? std::vector<float>{1.0F, -1.0F} : std::vector<float>{0.0F, 0.0F};
    const Batch batch = WithWeights(Batch({{1, 2}}), weights);
    table.Lookup(batch, LookupMode::kTrain);
    EXPECT_EQ(*table.shards().Lookup(batch, LookupMode::kEval), std::vector<float>(2, 0.0F));
    table.Push(batch, {5.0F, 7.0F});
    table.ExpectRowsMatch();
    EXPECT_EQ(table.shards().Export()[0].values, std::vector<float>(2, 3.0F));
  }
}

// So a step may have parts with weights and parts without.
TEST_P(Weights, OfOneAreNoWeightsToTheLastBit) {
  for (const Combiner combiner : kEveryCombiner) {
    const std::uint64_t seed = Seed(61);
    SCOPED_TRACE(SeedNote(seed));
    Random random(seed);
    CheckedTable without(cluster(), MakeOptions(5, combiner, OptimizerKind::kAdam), 2);
    CheckedTable with(cluster(), MakeOptions(5, combiner, OptimizerKind::kAdam), 2);
    for (int step = 0; step < 3; ++step) {
      Batch batch = RandomBatch(random, {.bags = 50, .max_bag = 40, .distinct_keys = 100});
      const std::vector<float> gradients = RandomGradients(random, std::size_t{batch.bags()} * 5);
      without.Push(batch, gradients);
      const auto pooled = without.shards().Lookup(batch, LookupMode::kEval);
      batch.weights.assign(batch.keys.size(), 1.0F);
      with.Push(batch, gradients);
      EXPECT_TRUE(SameBytes(*with.shards().Lookup(batch, LookupMode::kEval), *pooled, 5));
    }
    EXPECT_EQ(with.shards().Digest(), without.shards().Digest());
  }
}

// A weight belongs to its key wherever the key's row lies: ranks keep the weights of the keys that they keep.
TEST_P(Weights, StayWithTheirKeysOnAnyNumberOfRanks) {
  for (const int ranks : cluster().RanksOf({1, 2, 3, 8})) {
    for (const Combiner combiner : kEveryCombiner) {
      const std::uint64_t seed = Seed(62);
      SCOPED_TRACE(SeedNote(seed) + ", " + std::to_string(ranks) + " ranks, " +
                   std::string(ToString(combiner)));
      Random random(seed);
      CheckedTable table(cluster(), MakeOptions(7, combiner, OptimizerKind::kAdaGrad), ranks);
      for (int step = 0; step < 3; ++step) {
        Batch batch = RandomBatch(random, {.bags = 200, .max_bag = 9, .distinct_keys = 300});
        AddRandomWeights(random, batch);
        table.PushRandom(batch, random);
        table.Lookup(batch, LookupMode::kEval);
      }
      table.ExpectRowsMatch();
    }
  }
}

// One key with more than 32² occurrences: every level of the sum's tree sees weighted terms.
TEST_P(Weights, AreInTheSumsOfVeryHotRows) {
  const std::uint64_t seed = Seed(63);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  CheckedTable table(cluster(), MakeOptions(3, Combiner::kMean));
  Batch batch = RandomBatch(random, {.bags = 600, .max_bag = 12, .distinct_keys = 50, .hot_percent = 60});
  AddRandomWeights(random, batch);
  table.PushRandom(batch, random);
  table.ExpectRowsMatch();
}

TEST_P(Weights, ApplyToRowsWithoutACombinerToo) {
  TableOptions options = MakeOptions(4, Combiner::kNone, OptimizerKind::kAdaGrad);
  CheckedTable table(cluster(), options, 2);
  Random random(64);
  Batch batch = OneKeyABag({5, 9, 5, 1, 0, ~std::uint64_t{0}});
  table.PushRandom(batch, random);
  table.Lookup(batch, LookupMode::kEval);
  AddRandomWeights(random, batch);
  table.PushRandom(batch, random);
  table.Lookup(batch, LookupMode::kTrain);
  table.ExpectRowsMatch();
}

}  // namespace
}  // namespace slotwise::test
