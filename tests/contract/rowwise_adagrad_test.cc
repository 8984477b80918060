// RowWiseAdaGrad has one s for each row, from the mean of the row's squared gradient, however long the row or
// its segment is.
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class RowWiseAdaGrad : public ContractTest {
 protected:
  static TableOptions Options(std::uint32_t dim, float weight_decay = 0.0F) {
    TableOptions options = MakeOptions(dim, Combiner::kSum, OptimizerKind::kRowWiseAdaGrad);
    options.optimizer.weight_decay = weight_decay;
    return options;
  }
};
SLOTWISE_ON_EVERY_BACKEND(RowWiseAdaGrad);

TEST_P(RowWiseAdaGrad, KeepsOneFloatARowBehindTheValues) {
  for (const std::uint32_t dim : {1, 4, 17}) {
    CheckedTable table(cluster(), Options(dim));
    table.Lookup(OneBag({1, 2}), LookupMode::kTrain);
    for (const ExportedRow& row : table.shards().Export()) {
      ASSERT_EQ(row.values.size(), dim + 1);
      EXPECT_EQ(row.values.back(), 0.1F) << "initial_accumulator";
    }
  }
}

TEST_P(RowWiseAdaGrad, DividesEveryElementByTheRootOfTheRowsMeanSquare) {
  TableOptions options = Options(4);
  options.initializer = {.kind = InitializerKind::kConstant, .mean = 1.0F};
  options.optimizer.initial_accumulator = 3.0F;
  options.optimizer.learning_rate = 1.0F;
  CheckedTable table(cluster(), options);
  table.Push(Batch({{1}, {1}, {2}}), {1, 2, -3, 4, 1, 3, 0, 2, 0, 0, 0, 2});
  const std::vector<ExportedRow> rows = table.shards().Export();
  EXPECT_EQ(rows[0].values[4], 3.0F + (4.0F + 25.0F + 9.0F + 36.0F) / 4.0F);
  EXPECT_EQ(rows[1].values[4], 4.0F);
  EXPECT_EQ(rows[1].values, (std::vector<float>{1, 1, 1, 0, 4}));
  table.ExpectRowsMatch();
}

// 2^24 swallows each 1 that is added to it later, and none that was added before.
TEST_P(RowWiseAdaGrad, AddsSquaresInElementOrder) {
  for (const std::uint32_t dim : {4, 16, 33, 64, 65, 100, 128, 129, 132, 256}) {
    SCOPED_TRACE("dim " + std::to_string(dim));
    TableOptions options = Options(dim);
    options.optimizer.initial_accumulator = 0.0F;
    CheckedTable table(cluster(), options);
    std::vector<float> gradients(std::size_t{2} * dim, 1.0F);
    gradients[0] = 0x1p12F;            // the first element of key 1
    gradients[2 * dim - 1] = 0x1p12F;  // the last element of key 2
    table.Push(OneKeyABag({1, 2}), gradients);
    const std::vector<ExportedRow> rows = table.shards().Export();
    const auto n = static_cast<float>(dim);
    EXPECT_EQ(rows[0].values[dim], 0x1p24F / n);
    EXPECT_EQ(rows[1].values[dim], (0x1p24F + (n - 1.0F)) / n);
    table.ExpectRowsMatch();
  }
}

TEST_P(RowWiseAdaGrad, UpdatesRowsOfEveryNumberOfOccurrences) {
  for (const float weight_decay : {0.0F, 0.01F}) {
    for (const std::uint32_t dim : {1, 4, 5, 12, 16, 17, 32, 36, 64, 100, 128, 130, 132}) {
      SCOPED_TRACE("dim " + std::to_string(dim) + ", weight decay " + std::to_string(weight_decay));
      // One block, two, a level more, two levels more; all of them in one batch.
      std::vector<std::uint64_t> keys;
      for (const std::uint64_t count : {1, 2, 31, 32, 33, 64, 65, 1023, 1024, 1025, 2500, 1, 7}) {
        keys.insert(keys.end(), count, keys.size() * 977);
      }
      Random random(86);
      random.Shuffle(keys);
      CheckedTable table(cluster(), Options(dim, weight_decay), dim == 5 ? 3 : 1);
      for (int step = 0; step < 3; ++step) {
        table.PushRandom(OneKeyABag(keys), random);
      }
      table.ExpectRowsMatch();
    }
  }
}

TEST_P(RowWiseAdaGrad, UpdatesOneVeryHotRow) {
  CheckedTable table(cluster(), Options(3, 0.01F));
  Random random(87);
  table.PushRandom(OneKeyABag(std::vector<std::uint64_t>(70'000, 42)), random);
  table.PushRandom(OneKeyABag(std::vector<std::uint64_t>(33'000, 42)), random);
  table.ExpectRowsMatch();
}

TEST_P(RowWiseAdaGrad, UpdatesTheLongestRows) {
  for (const std::uint32_t dim : {1000, 4095, 4096}) {
    CheckedTable table(cluster(), Options(dim, 0.01F));
    Random random(88);
    for (int step = 0; step < 2; ++step) {
      Batch batch = RandomBatch(random, {.bags = 20, .max_bag = 3, .distinct_keys = 20});
      batch.AddBag(std::vector<std::uint64_t>(50, 5));
      table.PushRandom(batch, random);
    }
    table.ExpectRowsMatch();
  }
}

}  // namespace
}  // namespace slotwise::test
