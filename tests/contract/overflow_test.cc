// A step leaves an element as it was if its weight or state would become infinite or NaN. So rows stay finite
// for all finite gradients, and exported rows can be imported.
#include <cmath>
#include <limits>
#include <vector>

#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

constexpr float kMax = std::numeric_limits<float>::max();

class Overflow : public ContractTest {};
SLOTWISE_ON_EVERY_BACKEND(Overflow);

// Rows begin at 1, and the learning rate is 1.
TableOptions OptionsOf(OptimizerKind kind, std::uint32_t dim) {
  TableOptions options = MakeOptions(dim, Combiner::kSum, kind);
  options.initializer = {.kind = InitializerKind::kConstant, .mean = 1.0F};
  options.optimizer.learning_rate = 1.0F;
  options.optimizer.initial_accumulator = 4.0F;
  return options;
}

// Half of the gradients are moderate, so that some elements of a row move where others cannot.
std::vector<float> ExtremeGradients(Random& random, std::size_t count) {
  static const std::vector<float> kExtremes{kMax, -kMax, 3e38F, -1.7e38F, 1e30F, 1.9e19F, -1.8e19F, 1e-38F};
  std::vector<float> gradients = RandomGradients(random, count);
  for (float& gradient : gradients) {
    if (random.OneIn(2)) gradient = random.OneOf(kExtremes);
  }
  return gradients;
}

bool IsFinite(const ExportedRow& row) {
  for (const float value : row.values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

void ExpectFiniteRows(TableShards& table) {
  for (const ExportedRow& row : table.Export()) EXPECT_TRUE(IsFinite(row)) << "key " << Value(row.key);
}

// Short and long segments, rows that are whole vectors and rows that are not, with and without weights.
TEST_P(Overflow, NeverReachesARowWhateverFiniteGradientsCome) {
  const std::uint64_t seed = Seed(110);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (const OptimizerKind kind : kEveryOptimizer) {
    for (const std::uint32_t dim : {1, 3, 8, 17, 64, 130}) {
      for (const float weight_decay : {0.0F, 0.5F, 1e38F}) {
        SCOPED_TRACE(std::string(ToString(kind)) + " of dim " + std::to_string(dim) + ", weight decay " +
                     std::to_string(weight_decay));
        TableOptions options = OptionsOf(kind, dim);
        options.combiner = kEveryCombiner[dim % kEveryCombiner.size()];
        options.optimizer.weight_decay = weight_decay;
        if (dim == 3) options.optimizer.learning_rate = kMax;
        CheckedTable table(cluster(), options, dim == 17 ? 2 : 1);
        for (int step = 0; step < 4; ++step) {
          Batch batch = RandomBatch(random, {.bags = 60, .max_bag = 5, .distinct_keys = 40});
          batch.AddBag(std::vector<std::uint64_t>(40, 3));
          if (step % 2 == 1) AddRandomWeights(random, batch);
          table.Push(batch, ExtremeGradients(random, std::size_t{batch.bags()} * dim));
        }
        table.ExpectRowsMatch();
        ExpectFiniteRows(table.shards());
      }
    }
  }
}

TEST_P(Overflow, LeavesTheElementAndMovesItsNeighbours) {
  for (const OptimizerKind kind : kEveryOptimizer) {
    if (kind == OptimizerKind::kRowWiseAdaGrad) continue;
    for (const std::uint32_t dim : {3, 16, 130}) {
      SCOPED_TRACE(std::string(ToString(kind)) + " of dim " + std::to_string(dim));
      CheckedTable table(cluster(), OptionsOf(kind, dim));
      table.Push(OneBag({1}), std::vector<float>(dim, 0.5F));
      const ExportedRow before = table.shards().Export()[0];
      std::vector<float> gradients(dim, 0.25F);
      gradients[1] = kMax;
      table.Push(Batch({{1}, {1}}), [&] {  // twice, so that even SGD's sum overflows
        std::vector<float> twice = gradients;
        twice.insert(twice.end(), gradients.begin(), gradients.end());
        return twice;
      }());
      const ExportedRow after = table.shards().Export()[0];
      for (std::size_t i = 0; i < after.values.size(); ++i) {
        EXPECT_EQ(after.values[i] == before.values[i], i % dim == 1) << "float " << i << " of the record";
      }
      table.ExpectRowsMatch();
    }
  }
}

// AdaGrad would divide by the root of infinity: the weight alone would be finite.
TEST_P(Overflow, OfTheStateAloneKeepsTheWeightToo) {
  CheckedTable table(cluster(), OptionsOf(OptimizerKind::kAdaGrad, 2));
  table.Push(OneBag({1}), {2e19F, 1e19F});
  const std::vector<float> row = table.shards().Export()[0].values;
  EXPECT_EQ(row[0], 1.0F);
  EXPECT_EQ(row[2], 4.0F);
  EXPECT_EQ(row[1], 0.0F);
  EXPECT_EQ(row[3], 1e19F * 1e19F);
  table.ExpectRowsMatch();
}

TEST_P(Overflow, OfTheWeightAloneKeepsTheStateToo) {
  TableOptions options = OptionsOf(OptimizerKind::kMomentum, 2);
  options.optimizer.momentum = 0.5F;
  CheckedTable table(cluster(), options);
  table.Import({1}, {kMax, kMax, 3.0F, 8.0F});
  table.Push(OneBag({1}), {-1e38F, 1e38F});
  EXPECT_EQ(table.shards().Export()[0].values, (std::vector<float>{kMax, kMax - 1e38F, 3.0F, -1e38F}));
  table.ExpectRowsMatch();
}

// The row's shared state decides for all of its elements, those whose gradients are moderate too.
TEST_P(Overflow, OfRowWiseAdaGradsStateKeepsTheWholeRow) {
  for (const std::uint32_t dim : {2, 16, 130, 1000}) {
    SCOPED_TRACE("dim " + std::to_string(dim));
    CheckedTable table(cluster(), OptionsOf(OptimizerKind::kRowWiseAdaGrad, dim));
    std::vector<float> gradients(std::size_t{2} * dim, 1.0F);
    gradients[dim - 1] = 2e19F;
    table.Push(OneKeyABag({1, 2}), gradients);
    const std::vector<ExportedRow> rows = table.shards().Export();
    std::vector<float> unmoved(dim, 1.0F);
    unmoved.push_back(4.0F);
    EXPECT_EQ(rows[0].values, unmoved);
    EXPECT_EQ(rows[1].values[dim], 5.0F) << "the other row moves";
    EXPECT_LT(rows[1].values[0], 1.0F);
    table.ExpectRowsMatch();
  }
}

TEST_P(Overflow, OfOneRowWiseAdaGradWeightKeepsThatWeight) {
  TableOptions options = OptionsOf(OptimizerKind::kRowWiseAdaGrad, 2);
  options.optimizer.learning_rate = kMax;
  CheckedTable table(cluster(), options);
  table.Push(OneBag({1}), {2.0F, 0.5F});
  const std::vector<float> row = table.shards().Export()[0].values;
  EXPECT_EQ(row[0], 1.0F) << "kMax · 2 is infinite";
  EXPECT_LT(row[1], -1e37F);
  EXPECT_EQ(row[2], 4.0F + 4.25F / 2.0F);
  table.ExpectRowsMatch();
}

// An export is finite, and so an import takes it.
TEST_P(Overflow, LeavesRowsThatCanBeImported) {
  const std::uint64_t seed = Seed(111);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (const OptimizerKind kind : kEveryOptimizer) {
    SCOPED_TRACE(ToString(kind));
    CheckedTable table(cluster(), OptionsOf(kind, 5));
    const Batch batch = OneKeyABag(KeyRange(0, 50));
    for (int step = 0; step < 3; ++step) table.Push(batch, ExtremeGradients(random, 250));
    std::vector<std::uint64_t> keys;
    std::vector<float> records;
    for (const ExportedRow& row : table.shards().Export()) {
      keys.push_back(Value(row.key));
      records.insert(records.end(), row.values.begin(), row.values.end());
      for (std::size_t i = 5 + SquaresBegin(kind, 5); i < row.values.size(); ++i) {
        EXPECT_GE(row.values[i], 0.0F) << "a negative square would be refused";
      }
      EXPECT_TRUE(IsFinite(row));
    }
    CheckedTable copy(cluster(), OptionsOf(kind, 5));
    copy.Import(keys, records);
    EXPECT_EQ(copy.shards().Digest(), table.shards().Digest());
  }
}

// State that no step and no message can bring, such as a negative sum of squares, still makes no row NaN.
TEST_P(Overflow, IsNoMatterOfARootOfANegativeNumber) {
  for (const OptimizerKind kind : kEveryOptimizer) {
    SCOPED_TRACE(ToString(kind));
    CheckedTable table(cluster(), OptionsOf(kind, 3));
    const std::size_t columns = 3 + StateFloats(kind, 3);
    std::vector<float> record(columns, -9.0F);
    table.Import({1}, record);
    table.Push(OneBag({1}), {1.0F, -2.0F, 0.0F});
    table.ExpectRowsMatch();
    ExpectFiniteRows(table.shards());
  }
}

}  // namespace
}  // namespace slotwise::test
