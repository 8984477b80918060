// A table is altered: its rows stay where keys find them, and it has room, scores and keys as if it had been
// made with its new options.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/eviction_place.h"
#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"

namespace slotwise::test {
namespace {

class Alter : public ContractTest {};
SLOTWISE_ON_EVERY_BACKEND(Alter);

TableOptions With(TableOptions options, std::uint64_t max_rows) {
  options.max_rows = max_rows;
  return options;
}
TableOptions With(TableOptions options, ScoreKind score, std::uint64_t ttl_steps = 0) {
  options.eviction = {.score = score};
  options.ttl_steps = ttl_steps;
  return options;
}

// Large tables have several pieces of memory, small ones one, and both get addresses for many.
TEST_P(Alter, ARiseOfMaxRowsKeepsRowsAndMakesRoom) {
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kRowWiseAdaGrad}) {
    for (const std::uint64_t rows : {10U, 40'000U}) {
      SCOPED_TRACE(std::string(ToString(kind)) + ", " + std::to_string(rows) + " rows");
      TableOptions options = With(MakeOptions(20, Combiner::kSum, kind), rows);
      CheckedTable table(cluster(), options, 2);
      Random random(71);
      ASSERT_TRUE(table.PushRandom(OneKeyABag(KeyRange(0, rows)), random));
      EXPECT_FALSE(table.PushRandom(OneKeyABag({rows}), random)) << "the table is full";
      EXPECT_EQ(table.Erase(KeyRange(3, 4)), 4U);
      table.Alter(With(options, 2 * rows));
      table.ExpectRowsMatch();
      ASSERT_TRUE(table.PushRandom(OneKeyABag(KeyRange(rows / 2, rows)), random));
      table.ExpectRowsMatch();
      table.Alter(With(options, 1 << 20));
      ASSERT_TRUE(table.PushRandom(OneKeyABag(KeyRange(0, 3 * rows)), random));
      ASSERT_TRUE(table.Lookup(OneKeyABag(KeyRange(rows, 3 * rows)), LookupMode::kTrain));
      table.ExpectRowsMatch();
    }
  }
}

TEST_P(Alter, AFallOfMaxRowsBoundsNewRowsAlone) {
  TableOptions options = With(MakeOptions(4), 5000);
  CheckedTable table(cluster(), options, 2);
  Random random(72);
  ASSERT_TRUE(table.PushRandom(OneKeyABag(KeyRange(0, 5000)), random));
  EXPECT_EQ(table.Erase(KeyRange(0, 4000)), 4000U);
  table.Alter(With(options, 1000));
  EXPECT_FALSE(table.PushRandom(OneKeyABag({7}), random));
  EXPECT_EQ(table.Erase(KeyRange(4000, 500)), 500U);
  ASSERT_TRUE(table.PushRandom(OneKeyABag(KeyRange(0, 500)), random)) << "in the rows of erased keys";
  EXPECT_FALSE(table.PushRandom(OneKeyABag({777}), random));
  EXPECT_EQ(table.Erase(KeyRange(0, 5000)), 1000U);
  table.Alter(With(options, 5001));
  ASSERT_TRUE(table.PushRandom(OneKeyABag(KeyRange(0, 5001)), random));
  EXPECT_FALSE(table.PushRandom(OneKeyABag({5001}), random));
  table.ExpectRowsMatch();
}

// From each need of scores to each other: none, steps, counts, a time to live.
TEST_P(Alter, RowsHaveTheScoresOfTheTablesNewOptions) {
  const TableOptions options = MakeOptions(3, Combiner::kSum, OptimizerKind::kAdaGrad);
  const std::array kinds{With(options, ScoreKind::kNone),    With(options, ScoreKind::kStep),
                         With(options, ScoreKind::kLfu),     With(options, ScoreKind::kStepLfu),
                         With(options, ScoreKind::kNone, 9), With(options, ScoreKind::kLfu, 9)};
  for (const TableOptions& from : kinds) {
    for (TableOptions to : kinds) {
      SCOPED_TRACE("from " + std::string(ToString(from.score())) + " to " +
                   std::string(ToString(to.score())));
      CheckedTable table(cluster(), from, 2);
      Random random(73);
      const auto train = [&] {
        for (int step = 0; step < 3; ++step)
          table.PushRandom(RandomBatch(random, {.bags = 40, .max_bag = 5, .distinct_keys = 300}), random);
        table.Lookup(OneKeyABag(KeyRange(random.Below(300), 20)), LookupMode::kTrain);
      };
      train();
      table.Erase(KeyRange(10, 50));
      to.max_rows *= 2;
      table.Alter(to);
      table.ExpectRowsMatch();
      train();
      table.ExpectRowsMatch();
      table.Alter(from);
      table.ExpectRowsMatch();
      train();
      table.ExpectRowsMatch();
    }
  }
}

// A row's key, by which chance rounds, lies beside the score, or alone.
TEST_P(Alter, RowsOfSixteenBitsAreRoundedByTheirKeys) {
  for (const Rounding rounding : EveryKind<Rounding>()) {
    TableOptions options = MakeOptions(8, Combiner::kSum, OptimizerKind::kAdaGrad);
    options.row_dtype = DataType::kBFloat16;
    options.rounding = rounding;
    CheckedTable table(cluster(), options, 2);
    Random random(74);
    for (const ScoreKind score : {ScoreKind::kNone, ScoreKind::kStep, ScoreKind::kNone, ScoreKind::kLfu}) {
      table.Alter(With(With(options, 1U << (16 + static_cast<unsigned>(score))), score));
      for (int step = 0; step < 3; ++step)
        table.PushRandom(RandomBatch(random, {.bags = 60, .max_bag = 5, .distinct_keys = 200}), random);
      table.Erase(KeyRange(20, 30));
      table.ExpectRowsMatch();
    }
  }
}

// The shard of one rank.
class AlterAShard : public Alter {
 protected:
  void Make(const TableOptions& options) {
    options_ = options;
    shard_ = std::move(*device().MakeShard(options, {Rank{0}, 1, EvenBucketMap(1), kTestSecret}));
  }
  void Train(const std::vector<std::uint64_t>& keys, std::uint64_t score) {
    DeviceBatch batch(device(), OneKeyABag(keys));
    EXPECT_TRUE(shard_->PrepareInsert(batch.View()).Insert(score).ok());
  }
  Status Begin(const TableOptions& options) {
    device().Wait();
    return shard_->BeginAlter(options, kMaxRowsPerShard);
  }
  void AlterTo(const TableOptions& options, std::uint64_t score) {
    ASSERT_TRUE(Begin(options).ok());
    shard_->EndAlter(true, score);
    options_ = options;
  }

  TableOptions options_;
  std::unique_ptr<Shard> shard_;
};
SLOTWISE_ON_EVERY_BACKEND(AlterAShard);

TEST_P(AlterAShard, FindsWhatToEvictByTheScoresThatItMade) {
  Make(MakeOptions(4));
  Train(KeyRange(0, 100), 5);
  DeviceBatch erased(device(), OneKeyABag(KeyRange(0, 10)));
  std::move(*shard_->PrepareErase(erased.View())).Erase();
  AlterTo(With(options_, ScoreKind::kStep), 8);
  Train(KeyRange(200, 7), 9);
  const EvictionOrder order = EvictionOrder::Of(options_, 10);
  EvictedSums sums;
  auto upto = shard_->PrepareEvict(order, {7, ~std::uint64_t{0}}, sums);
  EXPECT_EQ(sums.rows, 0U) << "a row that no key has has no score";
  upto = shard_->PrepareEvict(order, {8, ~std::uint64_t{0}}, sums);
  EXPECT_EQ(sums.rows, 90U);
  ASSERT_TRUE(upto.ok());
  std::vector<Key> removed;
  removed.reserve(90);
  std::move(*upto).Erase(&removed);
  std::ranges::sort(removed);
  for (std::uint64_t i = 0; i < 90; ++i) ASSERT_EQ(Value(removed[i]), 10 + i);
  EXPECT_EQ(shard_->Usage().rows, 7U);
}

TEST_P(AlterAShard, ASnapshotOfChangesGoesOnWhereRowsStay) {
  Make(With(MakeOptions(4), 300));
  ASSERT_TRUE(shard_->TrackChanges(1000).ok());
  Train(KeyRange(0, 200), 1);
  auto all =
      shard_->BeginSnapshot({.changed_only = false, .remember = true, .max_copy_on_write_bytes = 1 << 20});
  ASSERT_TRUE(all.ok());
  // Rows may move while the snapshot is open.
  AlterTo(With(options_, 1 << 20), 1);
  Train(KeyRange(1000, 70'000), 1);
  std::vector<float> records(200 * RecordFloats(options_));
  all->snapshot->Read(device().WorkStream(), all->info.rows, records.data());
  device().Wait();
  for (std::size_t i = 0; i < 200; ++i) {
    const RowRecords now = shard_->Read(std::span(&all->info.keys[i], 1));
    ASSERT_TRUE(std::ranges::equal(now.records, std::span(records).subspan(i * 4, 4)));
  }
  all->snapshot->End(true);
  auto changed =
      shard_->BeginSnapshot({.changed_only = true, .remember = true, .max_copy_on_write_bytes = 1 << 20});
  ASSERT_TRUE(changed.ok());
  std::vector<Key> keys = changed->info.keys;
  std::ranges::sort(keys);
  ASSERT_EQ(keys.size(), 70'000U);
  EXPECT_EQ(Value(keys.front()), 1000U);
  changed->snapshot->End(true);
}

TEST_P(AlterAShard, RefusesToChangeRowsOfAnOpenSnapshot) {
  Make(MakeOptions(4));
  Train(KeyRange(0, 10), 1);
  auto snapshot = shard_->BeginSnapshot({.max_copy_on_write_bytes = 1 << 20});
  ASSERT_TRUE(snapshot.ok());
  EXPECT_THROW((void)Begin(With(options_, ScoreKind::kStep)), std::logic_error);
  snapshot->snapshot->End(false);
  EXPECT_TRUE(Begin(With(options_, ScoreKind::kStep)).ok());
  shard_->EndAlter(false, 1);
}

TEST_P(AlterAShard, AdmitsKeysByTheNewOptions) {
  Make(MakeOptions(4));
  const auto push = [&](std::uint64_t step) {
    DeviceBatch batch(device(), OneKeyABag(KeyRange(0, 1000)));
    auto prepared = shard_->PreparePush(batch.View(), {.step = step}).Finish();
    ASSERT_TRUE(prepared.ok());
    std::vector<float> zeros(4000);
    DeviceArray<float> gradients(device(), std::span<const float>(zeros));
    std::move(*prepared).Insert(step).Update(gradients.data(), ScalarsOfStep(options_.optimizer, step));
  };
  TableOptions options = options_;
  options.admission = {.kind = AdmissionKind::kProbability, .probability = 0.25F};
  AlterTo(options, 1);
  push(1);
  const std::uint64_t some = shard_->Usage().rows;
  EXPECT_GT(some, 150U);
  EXPECT_LT(some, 350U);
  options.admission.probability = 1e-9F;
  AlterTo(options, 2);
  push(2);
  EXPECT_EQ(shard_->Usage().rows, some);
  options.admission = {};
  AlterTo(options, 3);
  push(3);
  EXPECT_EQ(shard_->Usage().rows, 1000U);
}

}  // namespace
}  // namespace slotwise::test
