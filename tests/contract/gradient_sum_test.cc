// A row's gradient is summed over its occurrences in batch order, in blocks of 32, whose sums are again
// summed in blocks of 32.
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class GradientSum : public ContractTest {};
SLOTWISE_ON_EVERY_BACKEND(GradientSum);

// Occurrences around each depth of the tree: 32, 32², 32³.
const std::vector<std::uint64_t> kCounts{1,    2,    31,   32,   33,   63,     64,     65,     1023,  1024,
                                         1025, 1056, 1057, 2048, 4097, 32'767, 32'768, 32'769, 70'000};

TEST_P(GradientSum, IsATreeOfBlocksOf32) {
  for (const std::uint64_t count : kCounts) {
    SCOPED_TRACE(std::to_string(count) + " occurrences");
    CheckedTable table(cluster(), MakeOptions(2));
    Random random(90);
    table.PushRandom(OneKeyABag(std::vector<std::uint64_t>(count, 42)), random);
    table.ExpectRowsMatch();
  }
}

TEST_P(GradientSum, OfMoreThanAMillionOccurrencesIsATreeOfFiveLevels) {
  CheckedTable table(cluster(), MakeOptions(1));
  Random random(91);
  table.PushRandom(OneKeyABag(std::vector<std::uint64_t>((1 << 20) + 33, 42)), random);
  table.ExpectRowsMatch();
}

// Gradients that lose everything but one when added in another order: what is left tells the order by hand.
TEST_P(GradientSum, LosesWhatTheOrderLoses) {
  CheckedTable table(cluster(), MakeIntegerOptions(1));
  std::vector<float> gradients(64, 1.0F);
  gradients[0] = 0x1p24F;  // swallows a 1 that is added to it
  table.Push(OneKeyABag(std::vector<std::uint64_t>(64, 42)), gradients);
  // The first block is 2^24, the second 32. Added one by one it would be 2^24, and in pairs 2^24 + 62.
  EXPECT_EQ(table.shards().Export()[0].values[0], 3.0F - (0x1p24F + 32.0F));
  table.ExpectRowsMatch();
}

TEST_P(GradientSum, BeginsItsBlocksAtARowsOwnFirstOccurrence) {
  for (const std::uint32_t dim : {1, 4, 17, 128}) {
    SCOPED_TRACE("dim " + std::to_string(dim));
    // Rows of every awkward number of occurrences side by side, shuffled over the batch.
    std::vector<std::uint64_t> keys;
    for (const std::uint64_t count : {1, 2, 3, 31, 32, 33, 5, 40, 64, 65, 100, 1, 1, 1030, 7, 2000}) {
      const std::uint64_t key = keys.size() * 977;
      keys.insert(keys.end(), count, key);
    }
    Random random(92);
    random.Shuffle(keys);
    CheckedTable table(cluster(), MakeOptions(dim, Combiner::kSum, OptimizerKind::kAdam), dim == 4 ? 3 : 1);
    for (int step = 0; step < 2; ++step) {
      table.PushRandom(OneKeyABag(keys), random);
      random.Shuffle(keys);
    }
    table.ExpectRowsMatch();
  }
}

TEST_P(GradientSum, CountsARowAsOftenAsABagRepeatsIt) {
  for (const Combiner combiner : kEveryCombiner) {
    CheckedTable table(cluster(), MakeOptions(3, combiner, OptimizerKind::kAdaGrad));
    Random random(93);
    Batch batch = Batch({{1, 1, 1}, {2, 1, 2}, {}, {3}});
    batch.AddBag(std::vector<std::uint64_t>(40, 1));
    batch.AddBag(std::vector<std::uint64_t>(1100, 2));
    batch.AddBag(std::vector<std::uint64_t>{1, 2, 3, 4});
    table.PushRandom(batch, random);
    table.PushRandom(batch, random);
    table.ExpectRowsMatch();
  }
}

TEST_P(GradientSum, OfAMeanDividesEachBagBeforeItAdds) {
  CheckedTable table(cluster(), MakeOptions(1, Combiner::kMean));
  // 1/3 and 1/7 cannot be written exactly: dividing the sum instead would show in the last bit.
  table.Push(Batch({{1, 2, 3}, {1, 2, 3, 4, 5, 6, 7}, {1}, {1, 9}}), {1.0F, 1.0F, 0.1F, 0.7F});
  table.ExpectRowsMatch();
}

TEST_P(GradientSum, OfASqrtnDividesEachBagByTheRootOfItsSizeBeforeItAdds) {
  CheckedTable table(cluster(), MakeIntegerOptions(1, Combiner::kSqrtn));
  const Batch batch({{1, 1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {4}, {}});
  table.Push(batch, {2.0F, 6.0F, 5.0F, 100.0F});
  const std::vector<ExportedRow> rows = table.shards().Export();
  EXPECT_EQ(rows[0].values[0], 3.0F - (1.0F + 1.0F + 2.0F));
  EXPECT_EQ(rows[1].values[0], 3.0F - (1.0F + 2.0F));
  EXPECT_EQ(rows[3].values[0], 3.0F - (2.0F + 5.0F));
  table.Push(batch, {0.1F, 0.7F, 0.3F, 1.0F});
  table.Push(Batch({{1, 2, 3}, {1, 2, 3, 4, 5, 6, 7}, {1}, {1, 9}}), {1.0F, 1.0F, 0.1F, 0.7F});
  table.ExpectRowsMatch();
}

TEST_P(GradientSum, IsOneOccurrencesOwnGradientWhereThereIsJustOne) {
  CheckedTable table(cluster(), MakeOptions(130));
  Random random(94);
  std::vector<std::uint64_t> keys = KeyRange(0, 3000);
  random.Shuffle(keys);
  table.PushRandom(OneKeyABag(keys), random);
  table.ExpectRowsMatch();
}

TEST_P(GradientSum, StaysRightWhenSomeRowsAreVeryHotAndMostAreNot) {
  for (const int ranks : cluster().RanksOf({1, 3})) {
    CheckedTable table(cluster(), MakeOptions(5, Combiner::kSum, OptimizerKind::kAdaGrad), ranks);
    Random random(95);
    Batch batch;
    for (int bag = 0; bag < 6000; ++bag) {
      // A key of rank r is drawn about half as often as one of rank r - 1.
      std::vector<std::uint64_t> keys(random.Below(15));
      for (auto& key : keys) {
        key = random.Below(std::uint64_t{1} << random.Below(14));
      }
      batch.AddBag(keys);
    }
    table.PushRandom(batch, random);
    table.PushRandom(batch, random);
    table.ExpectRowsMatch();
  }
}

}  // namespace
}  // namespace slotwise::test
