// Tables whose rows are 16-bit numbers: what a step rounds, and how, on every backend.
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "slotwise/sizing.h"
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

constexpr std::array kHalves{DataType::kFloat16, DataType::kBFloat16};

class RowDtype : public ContractTest {
 protected:
  static TableOptions OptionsOf(DataType type, Rounding rounding, std::uint32_t dim = 8,
                                OptimizerKind kind = OptimizerKind::kSgd,
                                Combiner combiner = Combiner::kSum) {
    TableOptions options = MakeOptions(dim, combiner, kind);
    options.row_dtype = type;
    options.rounding = rounding;
    return options;
  }
};
SLOTWISE_ON_EVERY_BACKEND(RowDtype);

// Long segments, weights, means and odd lengths of rows: each has code of its own.
TEST_P(RowDtype, MatchesTheOracleWithEveryOptimizer) {
  const std::uint64_t seed = Seed(3600);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (const DataType type : kHalves) {
    for (const Rounding rounding : EveryKind<Rounding>()) {
      for (const OptimizerKind kind : kEveryOptimizer) {
        for (const std::uint32_t dim : {1U, 4U, 7U, 12U, 32U, 64U, 132U, 260U}) {
          SCOPED_TRACE(std::string(ToString(type)) + ", " + std::string(ToString(rounding)) + ", " +
                       std::string(ToString(kind)) + ", dim " + std::to_string(dim));
          const Combiner combiner = random.OneIn(2) ? Combiner::kSum : Combiner::kMean;
          TableOptions options = OptionsOf(type, rounding, dim, kind, combiner);
          options.optimizer.weight_decay = random.OneIn(2) ? 0.0F : 0.01F;
          CheckedTable table(cluster(), options, 2);
          Batch batch =
              RandomBatch(random, {.bags = 60, .max_bag = 8, .distinct_keys = 90, .hot_percent = 20});
          if (random.OneIn(2)) AddRandomWeights(random, batch);
          table.Lookup(batch, LookupMode::kTrain);
          for (int step = 0; step < 3; ++step) table.PushRandom(batch, random);
          table.Lookup(batch, LookupMode::kEval);
          table.ExpectRowsMatch();
        }
      }
    }
  }
}

// With steps of a 64th of the distance between neighbours, rounding to nearest never moves a weight.
TEST_P(RowDtype, MovesByChanceAsFarAsTheStepsTogether) {
  constexpr std::uint32_t kDim = 256;
  for (const DataType type : kHalves) {
    const float between = type == DataType::kFloat16 ? 0x1p-10F : 0x1p-7F;  // 1 and the next number
    for (const Rounding rounding : EveryKind<Rounding>()) {
      SCOPED_TRACE(std::string(ToString(type)) + ", " + std::string(ToString(rounding)));
      TableOptions options = OptionsOf(type, rounding, kDim);
      options.initializer = {.seed = 7, .kind = InitializerKind::kConstant, .mean = 1.0F};
      options.optimizer.learning_rate = between / 64;
      CheckedTable table(cluster(), options);
      constexpr int kSteps = 64;
      Batch batch;
      for (std::uint64_t key = 1; key <= 20; ++key) batch.AddBag(std::array{key});
      const std::vector<float> gradients(std::size_t{batch.bags()} * kDim, -1.0F);
      for (int step = 0; step < kSteps; ++step) table.Push(batch, gradients);
      table.ExpectRowsMatch();
      double moved = 0;
      for (const ExportedRow& row : table.shards().Export())
        for (const float value : row.values) moved += double{value} - 1;
      moved /= 20 * kDim * double{between};
      if (rounding == Rounding::kNearest) {
        EXPECT_EQ(moved, 0.0);
      } else {
        EXPECT_NEAR(moved, 1.0, 0.05) << "of " << kSteps << " steps";
      }
    }
  }
}

TEST_P(RowDtype, RoundsEachElementOfEachKeyInEachStepByItself) {
  constexpr std::uint32_t kDim = 64;
  TableOptions options = OptionsOf(DataType::kBFloat16, Rounding::kStochastic, kDim);
  options.initializer = {.seed = 7, .kind = InitializerKind::kConstant, .mean = 1.0F};
  options.optimizer.learning_rate = 0x1p-8F;  // half the way to the next number
  CheckedTable table(cluster(), options, 1);
  Batch batch;
  for (std::uint64_t key = 1; key <= 32; ++key) batch.AddBag(std::array{key});
  table.Push(batch, std::vector<float>(std::size_t{32} * kDim, -1.0F));
  const std::vector<ExportedRow> rows = table.shards().Export();
  ASSERT_EQ(rows.size(), 32u);
  for (std::size_t i = 1; i < rows.size(); ++i)
    EXPECT_NE(rows[i].values, rows[0].values) << "two keys were rounded alike";
  for (const ExportedRow& row : rows) {
    int moved = 0;
    for (std::size_t j = 0; j < kDim; ++j) moved += row.values[j] > 1.0F ? 1 : 0;
    EXPECT_GT(moved, 8);
    EXPECT_LT(moved, 56);
  }
  // Elements that lie a draw, or a vector of some tile, apart are rounded by different chance.
  for (const std::size_t apart : {1, 2, 4, 8, 16, 32}) {
    int alike = 0;
    for (const ExportedRow& row : rows)
      for (std::size_t j = 0; j < kDim; ++j) alike += row.values[j] == row.values[(j + apart) % kDim] ? 1 : 0;
    EXPECT_LT(alike, 32 * 48) << apart << " apart";
    EXPECT_GT(alike, 32 * 16) << apart << " apart";
  }
  CheckedTable later(cluster(), options, 1);
  later.Push(OneBag({999}), std::vector<float>(kDim, 0.0F));
  later.Push(batch, std::vector<float>(std::size_t{32} * kDim, -1.0F));
  EXPECT_NE(later.shards().Export()[0].values, rows[0].values) << "another step, and the same chance";
  later.ExpectRowsMatch();
}

TEST_P(RowDtype, KeepsAnElementThatWouldNotBeFiniteOnceItIsRounded) {
  for (const DataType type : kHalves) {
    for (const Rounding rounding : EveryKind<Rounding>()) {
      for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdaGrad, OptimizerKind::kAdam,
                                       OptimizerKind::kRowWiseAdaGrad}) {
        SCOPED_TRACE(std::string(ToString(type)) + ", " + std::string(ToString(rounding)) + ", " +
                     std::string(ToString(kind)));
        const float largest = LargestOf(type);
        const float between = type == DataType::kFloat16 ? 32.0F : largest * 0x1p-8F;
        TableOptions options = OptionsOf(type, rounding, 8, kind);
        options.optimizer.learning_rate = between * 2;
        CheckedTable table(cluster(), options, 2);
        for (const std::uint64_t key : {1, 2, 3}) {
          std::vector<float> values{largest, -largest, 1, largest - between, 0, -1, largest, 2};
          table.Import({key}, values);
          table.Push(OneBag({key}), {-1, 1, -1, -1, -1, 1, 1, std::numeric_limits<float>::infinity()});
        }
        table.ExpectRowsMatch();
        for (const ExportedRow& row : table.shards().Export()) {
          for (const float value : row.values) EXPECT_TRUE(std::isfinite(value)) << value;
          EXPECT_EQ(row.values[0], largest);
        }
      }
    }
  }
}

// Steps below a float16's least normal number, which go by another rule than larger ones.
TEST_P(RowDtype, RoundsTheSmallestNumbers) {
  const std::uint64_t seed = Seed(3601);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (const DataType type : kHalves) {
    for (const Rounding rounding : EveryKind<Rounding>()) {
      SCOPED_TRACE(std::string(ToString(type)) + ", " + std::string(ToString(rounding)));
      TableOptions options = OptionsOf(type, rounding, 32);
      options.initializer = {.kind = InitializerKind::kConstant};
      options.optimizer.learning_rate = 1.0F;
      CheckedTable table(cluster(), options, 2);
      Batch batch;
      for (std::uint64_t key = 1; key <= 30; ++key) batch.AddBag(std::array{key});
      for (int step = 0; step < 6; ++step) {
        std::vector<float> gradients = RandomGradients(random, std::size_t{30} * 32);
        const int least = type == DataType::kFloat16 ? -28 : -136;
        for (float& g : gradients) g = std::ldexp(g, least + static_cast<int>(random.Below(18)));
        table.Push(batch, gradients);
      }
      table.ExpectRowsMatch();
    }
  }
}

TEST_P(RowDtype, IsHalfTheMemory) {
  if (OverRanks()) GTEST_SKIP() << "one shard's";
  constexpr std::uint32_t kDim = 64;
  constexpr std::uint64_t kRows = 200'000;
  const auto bytes_of = [&](DataType type) {
    TableOptions options = OptionsOf(type, Rounding::kStochastic, kDim);
    options.initial_rows = kRows;
    const auto shards = cluster().MakeShards(options, 1, EvenBucketMap(1));
    const ShardUsage usage = shards->shard(0).Usage();
    return usage.bytes - sizing::BytesOfCells(usage.cells);
  };
  const std::uint64_t whole = bytes_of(DataType::kFloat32);
  const std::uint64_t keys = kRows * sizeof(Key) + 2 * sizing::kPieceBytes;
  EXPECT_LE(bytes_of(DataType::kFloat16), whole / 2 + keys) << "rounding by chance goes by the key";
  EXPECT_LE(bytes_of(DataType::kBFloat16), whole / 2 + keys);
}

}  // namespace
}  // namespace slotwise::test
