// An import overwrites rows, an erase removes them, and erased keys come back as new rows.
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class RowsByKey : public ContractTest {};
SLOTWISE_ON_EVERY_BACKEND(RowsByKey);

TEST_P(RowsByKey, ImportGivesAbsentKeysRowsAndOverwritesOthers) {
  for (const OptimizerKind kind : kEveryOptimizer) {
    for (const bool with_state : {false, true}) {
      SCOPED_TRACE(std::string(ToString(kind)) + (with_state ? " with state" : ""));
      Random random(70);
      CheckedTable table(cluster(), MakeOptions(5, Combiner::kSum, kind), 3);
      table.PushRandom(OneKeyABag(KeyRange(0, 40)), random);
      table.ImportRandom(KeyRange(20, 40), with_state, random);
      table.ExpectRowsMatch();
      table.PushRandom(OneKeyABag(KeyRange(0, 80)), random);
      table.ExpectRowsMatch();
    }
  }
}

TEST_P(RowsByKey, ImportLetsTheLastOfRepeatedKeysCount) {
  CheckedTable table(cluster(), MakeOptions(2, Combiner::kSum, OptimizerKind::kAdam), 2);
  Random random(71);
  std::vector<std::uint64_t> keys;
  for (int i = 0; i < 5000; ++i) keys.push_back(random.Below(200));
  table.ImportRandom(keys, true, random);
  table.ExpectRowsMatch();
}

TEST_P(RowsByKey, ImportPastTheBoundChangesNothing) {
  TableOptions options = MakeOptions(3);
  options.max_rows = 50;
  CheckedTable table(cluster(), options, 2);
  Random random(72);
  EXPECT_TRUE(table.ImportRandom(KeyRange(0, 50), false, random));
  const DigestSums before = table.shards().Digest();
  EXPECT_FALSE(table.ImportRandom(KeyRange(49, 2), false, random));
  EXPECT_EQ(table.shards().Digest(), before);
  EXPECT_TRUE(table.ImportRandom(KeyRange(10, 40), false, random));
  table.ExpectRowsMatch();
}

TEST_P(RowsByKey, EraseForgetsKeysAndLeavesTheOthersAlone) {
  CheckedTable table(cluster(), MakeOptions(4, Combiner::kMean, OptimizerKind::kMomentum), 3);
  Random random(73);
  table.PushRandom(OneKeyABag(KeyRange(0, 3000)), random);
  std::vector<std::uint64_t> doomed;
  for (std::uint64_t key = 0; key < 4000; key += 3) doomed.push_back(key);
  EXPECT_EQ(table.Erase(doomed), 1000u);
  EXPECT_EQ(table.Erase(doomed), 0u);
  table.ExpectRowsMatch();
  table.Lookup(OneKeyABag(KeyRange(0, 4000)), LookupMode::kEval);
}

TEST_P(RowsByKey, ErasedKeysComeBackAsNewOnes) {
  CheckedTable table(cluster(), MakeOptions(4, Combiner::kSum, OptimizerKind::kAdaGrad), 2);
  Random random(74);
  for (int round = 0; round < 4; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    table.PushRandom(OneKeyABag(KeyRange(0, 500)), random);
    table.Erase(KeyRange(100, 300));
    table.Lookup(OneKeyABag(KeyRange(150, 100)), LookupMode::kTrain);  // their initial values again
    table.ExpectRowsMatch();
  }
}

TEST_P(RowsByKey, EraseCountsAKeyOnceHoweverOftenItIsNamed) {
  CheckedTable table(cluster(), MakeOptions(1));
  Random random(75);
  table.PushRandom(OneKeyABag({1, 2, 3}), random);
  EXPECT_EQ(table.Erase({2, 2, 2, 9, 2, 3}), 2u);
  table.ExpectRowsMatch();
}

TEST_P(RowsByKey, AnyKeyMayBeErasedAndExported) {
  CheckedTable table(cluster(), MakeOptions(2, Combiner::kSum, OptimizerKind::kAdaGrad), 2);
  Random random(76);
  const std::vector<std::uint64_t>& keys = SpecialKeys();
  table.PushRandom(OneKeyABag(keys), random);
  table.ExpectRowsMatch();
  for (const std::uint64_t key : keys) {
    EXPECT_EQ(table.Erase({key}), 1u) << key;
    table.ExpectRowsMatch();
  }
  table.PushRandom(OneKeyABag(keys), random);
  table.ExpectRowsMatch();
}

// The rows of erased keys are handed out again: a table whose keys come and go needs no more memory than
// those it has.
TEST_P(RowsByKey, ThatComeAndGoTakeNoMoreMemory) {
  TableOptions options = MakeOptions(8);
  options.max_rows = 1000;
  CheckedTable table(device(), options);
  Random random(77);
  std::uint64_t bytes = 0;
  for (std::uint64_t day = 0; day < 60; ++day) {
    ASSERT_TRUE(table.PushRandom(OneKeyABag(KeyRange(day * 700, 700)), random)) << "day " << day;
    EXPECT_EQ(table.Erase(KeyRange(day * 700, 700)), 700u);
    if (day == 2) bytes = table.shards().shard(0).Usage().bytes;
  }
  EXPECT_EQ(table.shards().shard(0).Usage().bytes, bytes);
  table.ExpectRowsMatch();
}

// Dead cells are cleared away by a rehash, which leaves the table the room that initial_rows asked for.
TEST_P(RowsByKey, ThatComeAndGoLeaveTheTableItsRoom) {
  TableOptions options = MakeOptions(2);
  options.initial_rows = 5000;
  CheckedTable table(device(), options);
  Random random(81);
  const std::uint64_t cells = table.shards().shard(0).Usage().cells;
  for (std::uint64_t day = 0; day < 40; ++day) {
    table.PushRandom(OneKeyABag(KeyRange(day * 600, 600)), random);
    table.Erase(KeyRange(day * 600, 600));
    EXPECT_EQ(table.shards().shard(0).Usage().cells, cells) << "day " << day;
  }
}

TEST_P(RowsByKey, EraseMakesRoomInAFullTable) {
  TableOptions options = MakeOptions(3);
  options.max_rows = 100;
  CheckedTable table(cluster(), options, 2);
  Random random(78);
  EXPECT_TRUE(table.PushRandom(OneKeyABag(KeyRange(0, 100)), random));
  EXPECT_FALSE(table.PushRandom(OneKeyABag({100}), random));
  table.Erase({7});
  EXPECT_TRUE(table.PushRandom(OneKeyABag({100}), random));
  EXPECT_FALSE(table.PushRandom(OneKeyABag({7}), random));
  table.ExpectRowsMatch();
}

TEST_P(RowsByKey, ReadFindsTheKeysThatAreThereInTheirOrder) {
  const TableOptions options = MakeOptions(3, Combiner::kSum, OptimizerKind::kAdam);
  CheckedTable table(device(), options);
  Random random(79);
  table.PushRandom(OneKeyABag(KeyRange(0, 10)), random);
  const std::vector<Key> wanted{Key{9}, Key{77}, Key{0}, Key{9}};
  const RowRecords rows = table.shards().shard(0).Read(wanted);
  EXPECT_EQ(rows.keys, (std::vector<Key>{Key{9}, Key{0}, Key{9}}));
  const Oracle::Row& row = table.oracle().rows().at(9);
  std::vector<float> expected = row.values;
  expected.insert(expected.end(), row.state.begin(), row.state.end());
  EXPECT_TRUE(SameBytes({rows.records.begin(), rows.records.begin() + 9}, expected));
  EXPECT_TRUE(table.shards().shard(0).Read({}).keys.empty());
}

TEST_P(RowsByKey, NothingIsFoundInAnEmptyTable) {
  CheckedTable table(cluster(), MakeOptions(3), 2);
  EXPECT_EQ(table.Erase(KeyRange(0, 10)), 0u);
  EXPECT_EQ(table.Erase({}), 0u);
  Random random(80);
  EXPECT_TRUE(table.ImportRandom({}, false, random));
  table.ExpectRowsMatch();
}

}  // namespace
}  // namespace slotwise::test
