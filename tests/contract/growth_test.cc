// A table grows from no room at all to a hundred thousand rows, and every row keeps its key, values and
// state. In the middle of its growth it answers as any.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/eviction_place.h"
#include "kernels/slow_growth.h"
#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"
#include "tests/support/table_shards.h"

namespace slotwise::test {
namespace {

class Growth : public ContractTest {};
SLOTWISE_ON_EVERY_BACKEND(Growth);

TEST_P(Growth, FromNothingInBatchesOfEverySizeKeepsEveryRow) {
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kRowWiseAdaGrad}) {
    CheckedTable table(cluster(), MakeOptions(3, Combiner::kSum, kind));
    Random random(61);
    std::uint64_t next = 0;
    for (std::uint64_t count = 1; next < 100'000; count = count * 2 + 1) {
      SCOPED_TRACE("from " + std::to_string(next) + " rows to " + std::to_string(next + count));
      ASSERT_TRUE(table.PushRandom(OneKeyABag(KeyRange(next, count)), random));
      next += count;
      // Some of the oldest rows and of those just added.
      table.Lookup(OneKeyABag(KeyRange(0, 50)), LookupMode::kEval);
      table.Lookup(OneKeyABag(KeyRange(next - std::min<std::uint64_t>(count, 50), 100)), LookupMode::kEval);
    }
    table.ExpectRowsMatch();
  }
}

TEST_P(Growth, OneKeyAtATimeKeepsEveryRow) {
  CheckedTable table(cluster(), MakeOptions(2, Combiner::kSum, OptimizerKind::kAdaGrad));
  Random random(62);
  for (std::uint64_t key = 0; key < 1500; ++key) {
    ASSERT_TRUE(table.PushRandom(OneBag({key}), random));
    if (key % 100 == 0) {
      table.ExpectRowsMatch();
    }
  }
  table.ExpectRowsMatch();
}

TEST_P(Growth, InOneLeapKeepsEveryRow) {
  CheckedTable table(cluster(), MakeOptions(5, Combiner::kSum, OptimizerKind::kAdaGrad));
  Random random(63);
  table.PushRandom(OneKeyABag({1, 2, 3}), random);
  ASSERT_TRUE(table.Lookup(OneBag(KeyRange(0, 150'000)), LookupMode::kTrain));
  EXPECT_EQ(table.shards().rows(), 150'000u);
  table.ExpectRowsMatch();
}

TEST_P(Growth, WithinABatchOfManyRepeatsNeedsRoomForDistinctKeysOnly) {
  TableOptions options = MakeOptions(4);
  options.max_rows = 100;
  CheckedTable table(cluster(), options);
  Random random(64);
  Batch batch;
  for (int bag = 0; bag < 3000; ++bag) {
    batch.AddBag(std::vector{random.Below(100), random.Below(100), random.Below(100)});
  }
  EXPECT_TRUE(table.PushRandom(batch, random));
  EXPECT_EQ(table.shards().rows(), 100u);
  table.ExpectRowsMatch();
}

TEST_P(Growth, ThatIsPreparedAndThenRefusedChangesNothing) {
  CheckedTable table(device(), MakeOptions(4, Combiner::kSum, OptimizerKind::kAdam));
  Random random(65);
  table.PushRandom(OneKeyABag(KeyRange(0, 100)), random);
  const DigestSums before = table.shards().Digest();
  const Batch large = OneBag(KeyRange(50, 100'000));
  DeviceBatch on_device(device(), large);
  ASSERT_TRUE(table.shards().shard(0).PrepareInsert(on_device.View()).Finish().ok());
  EXPECT_EQ(table.shards().Digest(), before);
  table.Lookup(large, LookupMode::kEval);
  table.ExpectRowsMatch();
}

TEST_P(Growth, MakesNoDifferenceToATableThatHadRoomFromTheStart) {
  TableOptions roomy = MakeOptions(8, Combiner::kMean, OptimizerKind::kAdam);
  roomy.initial_rows = 200'000;
  CheckedTable large(cluster(), roomy);
  CheckedTable growing(cluster(), MakeOptions(8, Combiner::kMean, OptimizerKind::kAdam));
  Random random(66);
  for (int step = 0; step < 5; ++step) {
    const Batch batch = RandomBatch(random, {.bags = 500, .max_bag = 10, .distinct_keys = 20'000});
    const std::vector<float> gradients = RandomGradients(random, std::size_t{batch.bags()} * 8);
    large.Push(batch, gradients);
    growing.Push(batch, gradients);
    ASSERT_EQ(growing.shards().Digest(), large.shards().Digest());
  }
  large.ExpectRowsMatch();
  growing.ExpectRowsMatch();
}

// Searches are long in a full table, and those for absent keys longest.
TEST_P(Growth, KeepsTheLoadThatTheTableMayHave) {
  for (const float max_load : {TableOptions::kLeastMaxLoad, 0.5F, 0.75F, 0.9F, TableOptions::kMostMaxLoad}) {
    SCOPED_TRACE("max_load " + std::to_string(max_load));
    TableOptions options = MakeOptions(4, Combiner::kSum, OptimizerKind::kAdaGrad);
    options.max_load = max_load;
    CheckedTable table(device(), options);
    Random random(68);
    const auto full = static_cast<std::uint64_t>(16'384 * max_load);  // as full as it may be
    for (const std::uint64_t rows : {full / 2, full, full + 1}) {
      table.PushRandom(OneKeyABag(KeyRange(0, rows)), random);
      table.Lookup(OneKeyABag(KeyRange(rows / 2, 2 * rows)), LookupMode::kEval);
      const ShardUsage usage = table.shards().shard(0).Usage();
      EXPECT_LE(static_cast<double>(rows), max_load * static_cast<double>(usage.cells));
      EXPECT_GE(static_cast<double>(rows), max_load / 2 * static_cast<double>(usage.cells - 1));
    }
    EXPECT_EQ(table.Erase(KeyRange(0, full / 2)), full / 2);
    table.PushRandom(OneKeyABag(KeyRange(full / 4, full)), random);
    table.ExpectRowsMatch();
  }
}

TEST_P(Growth, TakesALoadThatFloatsDoNotHaveForWhatItIsWrittenAs) {
  TableOptions options = MakeOptions(1);
  options.max_rows = std::uint64_t{1} << 20;
  options.initial_rows = std::uint64_t{15} << 16;  // 0.9375 of 2^20 cells
  options.max_load = 0.9375F;
  EXPECT_EQ(CheckedTable(device(), options).shards().shard(0).Usage().cells, std::uint64_t{1} << 20);
  options.initial_rows = 943'718;  // 0.9 of 2^20, rounded down; 0.9F is a little less than 0.9
  options.max_load = 0.9F;
  EXPECT_EQ(CheckedTable(device(), options).shards().shard(0).Usage().cells, std::uint64_t{1} << 20);
}

// Keys that come and go leave dead cells. When those alone fill the table, leaving them behind makes room for
// more than a few batches.
TEST_P(Growth, OfATableWhoseKeysComeAndGoLeavesRoomForSome) {
  TableOptions options = MakeOptions(1);
  options.max_rows = 4096;
  CheckedTable table(device(), options);
  const std::uint64_t cells_at_first = table.shards().shard(0).Usage().cells;
  const std::uint64_t full = cells_at_first / 2;  // by max_load
  table.Lookup(OneKeyABag(KeyRange(0, full - 5)), LookupMode::kTrain);
  ASSERT_EQ(table.shards().shard(0).Usage().cells, cells_at_first);
  for (std::uint64_t turn = 0; turn < 40; ++turn) {
    EXPECT_EQ(table.Erase(KeyRange(turn * 5, 5)), 5u);
    table.Lookup(OneKeyABag(KeyRange(full - 5 + turn * 5, 5)), LookupMode::kTrain);
  }
  const ShardUsage usage = table.shards().shard(0).Usage();
  EXPECT_EQ(usage.rows, full - 5);
  EXPECT_EQ(usage.cells, 2 * cells_at_first);
  table.ExpectRowsMatch();
}

TEST_P(Growth, ShowsInUsage) {
  CheckedTable table(device(), MakeOptions(16));
  std::uint64_t bytes = 0;
  for (const std::uint64_t rows : {10, 1000, 30'000}) {
    table.Lookup(OneBag(KeyRange(0, rows)), LookupMode::kTrain);
    const ShardUsage usage = table.shards().shard(0).Usage();
    EXPECT_EQ(usage.rows, rows);
    EXPECT_GE(usage.cells, rows);
    EXPECT_GE(usage.bytes, rows * (16 * sizeof(float) + sizeof(Key)));
    EXPECT_GE(usage.bytes, bytes);
    bytes = usage.bytes;
  }
}

// Two shards of the same table: one is slow to grow, the other had room from the start.
class SlowlyGrowing : public ContractTest {
 protected:
  void Make(const TableOptions& options) {
    options_ = options;
    for (const std::uint64_t initial_rows : {0, 200'000}) {
      options_.initial_rows = initial_rows;
      shards_.push_back(
          std::move(*device().MakeShard(options_, {Rank{0}, 1, EvenBucketMap(1), kTestSecret})));
      ASSERT_TRUE(shards_.back()->TrackChanges(100'000).ok());
    }
  }

  // Calls f(shard, batch) of both, and expects the same digest afterwards.
  template <class F>
  void OnBoth(const std::vector<std::uint64_t>& keys, F f) {
    DeviceBatch batch(device(), OneKeyABag(keys));
    for (const auto& shard : shards_) f(*shard, batch.View());
    ASSERT_EQ(shards_[0]->Digest(), shards_[1]->Digest());
    moving_ += shards_[0]->Usage().cells_to_move > 0 ? 1 : 0;
  }
  void Push(const std::vector<std::uint64_t>& keys, std::uint64_t step) {
    const std::vector<float> gradients(keys.size() * options_.dim, 0.25F * static_cast<float>(step % 7));
    DeviceArray<float> values(device(), std::span(gradients));
    OnBoth(keys, [&](Shard& shard, const BatchView& batch) {
      std::move(*shard.PreparePush(batch).Insert(step))
          .Update(values.data(), ScalarsOfStep(options_.optimizer, step));
    });
  }
  void Import(const std::vector<std::uint64_t>& keys, std::uint64_t step) {
    const std::vector<float> ones(keys.size() * options_.dim, 1.0F);
    DeviceArray<float> values(device(), std::span(ones));
    OnBoth(keys, [&](Shard& shard, const BatchView& batch) {
      std::move(*shard.PrepareInsert(batch).Insert(step)).Assign(values.data(), options_.dim);
    });
  }
  void Load(const std::vector<std::uint64_t>& keys) {
    std::vector<Key> distinct;
    for (const std::uint64_t key : keys) distinct.push_back(Key{key});
    const std::vector<float> records(keys.size() * RecordFloats(options_), 0.5F);
    for (const auto& shard : shards_) ASSERT_TRUE(shard->Load(distinct, records.data()).ok());
  }
  // Evicts the rows with the lowest scores, but for those of `spared`, about `count`.
  void Evict(const std::vector<std::uint64_t>& spared, std::uint64_t count, std::uint64_t step) {
    std::array<std::vector<Key>, 2> named;
    std::array<EvictedSums, 2> sums;
    std::size_t at = 0;
    const EvictionOrder order = EvictionOrder::Of(options_, step);
    OnBoth(spared, [&](Shard& shard, const BatchView& batch) {
      std::move(*shard.PreparePush(batch).Finish()).Protect();
      std::vector<std::uint64_t> counts(PlacePrefix::kDigits);
      PlacePrefix prefix;
      for (std::uint64_t left = count; prefix.bits < PlacePrefix::kBits;) {
        shard.CountPlaces(order, prefix, counts);
        std::uint32_t digit = 0;
        for (; digit + 1 < counts.size() && counts[digit] < left; ++digit) left -= counts[digit];
        prefix = prefix.With(digit);
      }
      auto evicted = shard.PrepareEvict(order, prefix.Last(), sums[at]);
      ASSERT_TRUE(evicted.ok());
      named[at] = shard.EndProtection(order, prefix.Last());
      std::ranges::sort(named[at]);
      ASSERT_TRUE(shard.ReserveBehind(sums[at].rows, spared.size()).ok());
      EXPECT_EQ(std::move(*evicted).Erase(nullptr), sums[at].rows);
      ++at;
    });
    EXPECT_EQ(sums[0], sums[1]);
    EXPECT_EQ(named[0], named[1]);
    EXPECT_GE(sums[0].rows, 1U);
  }
  // Compares a snapshot's rows and erased keys.
  void Snapshot(bool changed_only, bool kept) {
    std::array<std::map<Key, std::vector<float>>, 2> read;
    std::array<std::vector<Key>, 2> erased;
    const auto stream = device().MakeStream();
    for (std::size_t at = 0; at < 2; ++at) {
      auto begun = shards_[at]->BeginSnapshot({.changed_only = changed_only, .remember = true});
      ASSERT_TRUE(begun.ok()) << begun.status().message();
      const SnapshotInfo& info = begun->info;
      const std::size_t floats = RecordFloats(options_);
      std::vector<float> records(info.keys.size() * floats);
      begun->snapshot->Read(*stream, info.rows, records.data());
      stream->Wait();
      begun->snapshot->End(kept);
      for (std::size_t i = 0; i < info.keys.size(); ++i) {
        const auto record = records.begin() + static_cast<std::ptrdiff_t>(i * floats);
        const bool first =
            read[at]
                .emplace(info.keys[i],
                         std::vector<float>(record, record + static_cast<std::ptrdiff_t>(floats)))
                .second;
        EXPECT_TRUE(first) << "listed twice: " << Value(info.keys[i]);
      }
      erased[at] = begun->info.erased;
      std::ranges::sort(erased[at]);
    }
    EXPECT_EQ(read[0].size(), read[1].size());
    EXPECT_TRUE(read[0] == read[1]);
    EXPECT_EQ(erased[0], erased[1]);
  }

  TableOptions options_;
  std::vector<std::unique_ptr<Shard>> shards_;
  int moving_ = 0;  // batches after which keys were still to move
};
SLOTWISE_ON_EVERY_BACKEND(SlowlyGrowing);

TEST_P(SlowlyGrowing, AnswersAsATableThatHadRoom) {
  const std::uint64_t seed = Seed(69);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  const SlowGrowth slow(40);
  TableOptions options = MakeOptions(4, Combiner::kSum, OptimizerKind::kRowWiseAdaGrad);
  options.eviction.score = ScoreKind::kLfu;
  Make(options);
  std::uint64_t step = 0;
  const auto drawn = [&](std::uint64_t most) {
    std::vector<std::uint64_t> keys(1 + random.Below(most));
    std::ranges::generate(keys, [&] { return random.Below(40'000); });
    return keys;
  };
  const auto distinct = [&](std::uint64_t most) {
    return KeyRange(random.Below(40'000), 1 + random.Below(most));
  };
  for (int i = 0; i < 400 && !HasFailure(); ++i) {
    SCOPED_TRACE("operation " + std::to_string(i));
    const std::uint64_t operation = random.Below(20);
    if (operation < 9) {
      Push(drawn(200), ++step);
    } else if (operation < 12) {
      OnBoth(distinct(200), [&](Shard& shard, const BatchView& batch) {
        EXPECT_TRUE(shard.PrepareInsert(batch).Insert(step + 1).ok());
      });
    } else if (operation < 14) {
      OnBoth(distinct(500), [&](Shard& shard, const BatchView& batch) {
        EXPECT_TRUE(shard.PrepareErase(batch).ok());
        std::move(*shard.PrepareErase(batch)).Erase(nullptr);
      });
    } else if (operation == 14) {
      Import(distinct(200), step + 1);
    } else if (operation == 15) {
      Load(distinct(200));
    } else if (operation == 16) {
      Evict(drawn(50), 1 + random.Below(100), step + 1);
    } else if (operation == 17) {
      Snapshot(i % 2 == 0, i % 3 == 0);
    } else {
      std::vector<Key> some;
      for (const std::uint64_t key : distinct(500)) some.push_back(Key{key});
      const RowRecords mine = shards_[0]->Read(some), theirs = shards_[1]->Read(some);
      EXPECT_EQ(mine.keys, theirs.keys);
      EXPECT_TRUE(SameBytes(mine.records, theirs.records));
      std::vector<Key> keys = shards_[0]->Keys(), all = shards_[1]->Keys();
      std::ranges::sort(keys);
      std::ranges::sort(all);
      EXPECT_EQ(keys, all);
    }
  }
  EXPECT_GT(shards_[0]->Usage().cells, 30'000U);
  EXPECT_GT(moving_, 100) << "batches of about 300";
}

// Keys that a hash table wants to put into the same place, or whose owners' hashes are alike.
class CollidingKeys : public ContractTest {
 protected:
  // mix64 can be inverted, so anybody can send keys of such hashes.
  void ExpectServed(const std::vector<std::uint64_t>& hashes) {
    std::vector<std::uint64_t> keys;
    for (const std::uint64_t hash : hashes) {
      keys.push_back(KeyOfHash(hash));
    }
    ExpectKeysServed(keys);
  }

  // For keys whose hashes under the secret have these bits.
  void ExpectServedInPlace(std::uint64_t mask, std::uint64_t wanted, std::size_t count = 1500) {
    ExpectKeysServed(KeysOfPlace(kTestSecret, mask, wanted, count));
  }

  void ExpectKeysServed(const std::vector<std::uint64_t>& keys) {
    for (const std::uint64_t initial_rows : {std::uint64_t{0}, std::uint64_t{2 * keys.size()}}) {
      TableOptions options = MakeOptions(3, Combiner::kSum, OptimizerKind::kAdaGrad);
      options.initial_rows = initial_rows;
      CheckedTable table(cluster(), options);
      std::vector<std::uint64_t> half(keys.begin(),
                                      keys.begin() + static_cast<std::ptrdiff_t>(keys.size() / 2));
      Random random(67);
      table.PushRandom(OneKeyABag(half), random);
      table.Lookup(OneKeyABag(keys), LookupMode::kEval);  // half of them are there
      table.PushRandom(OneKeyABag(keys), random);
      table.Lookup(OneKeyABag(keys), LookupMode::kTrain);
      table.ExpectRowsMatch();
    }
  }
};
SLOTWISE_ON_EVERY_BACKEND(CollidingKeys);

constexpr std::uint64_t kMany = 1500;  // more than a table begins with room for

TEST_P(CollidingKeys, WhoseSearchesBeginInOnePlace) {
  ExpectServedInPlace(0xFFF, 0x000);
  ExpectServedInPlace(0xFFF, 0x345);
}

// The searches begin at the last places of the table and go on at the first.
TEST_P(CollidingKeys, WhoseSearchesBeginAtTheTablesEnd) { ExpectServedInPlace(0xFFC, 0xFFC); }

TEST_P(CollidingKeys, WhoseSearchesGoTheSameWay) {
  ExpectServedInPlace(0x1FE'0000'07FE, 0x0A4'0000'0356, 120);  // all of it, in 2048 cells
  ExpectServedInPlace(0xFFE'0000'0000, 0x000'0000'0000);       // from each line to the next one
}

TEST_P(CollidingKeys, WhoseHashesEndAlike) {
  for (const std::uint64_t end : {0x00000ull, 0x12345ull}) {
    std::vector<std::uint64_t> hashes;
    for (std::uint64_t i = 0; i < kMany; ++i) {
      hashes.push_back(i << 20 | end);
    }
    ExpectServed(hashes);
  }
}

TEST_P(CollidingKeys, WhoseHashesFallOnAFewEnds) {
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t i = 0; i < kMany; ++i) {
    hashes.push_back(i << 20 | (0xFFFFF - i % 3));
  }
  for (std::uint64_t i = 0; i < 50; ++i) {
    hashes.push_back(i << 40 | i % 4);
  }
  ExpectServed(hashes);
}

TEST_P(CollidingKeys, WhoseHashesDifferInTheirTopBitsAlone) {
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t i = 0; i < kMany; ++i) {
    hashes.push_back(i << 52 | 0x000F'FFFF'FFFF'FFFF);
  }
  ExpectServed(hashes);
}

TEST_P(CollidingKeys, WhoseHashesBeginAlike) {
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t i = 0; i < kMany; ++i) {
    hashes.push_back(0xFFFF'FFFF'FFFF'FFFF - i);
    hashes.push_back(i);
  }
  ExpectServed(hashes);
}

}  // namespace
}  // namespace slotwise::test
