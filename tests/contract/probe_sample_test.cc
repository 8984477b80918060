// The sampled probe lengths of a shard's hash table are those of a plain table that is filled in the same
// order.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/body/hash_table.h"
#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"
#include "tests/support/test_secret.h"

namespace slotwise::test {
namespace {

constexpr std::uint64_t kDistance = 1024;
constexpr std::size_t kMost = 256;

// Cells in lines of four. Keys are put where the comment on kernels/body/hash_table.h says, by loops over
// whole lines; erased keys stay.
class PlainTable {
 public:
  explicit PlainTable(std::uint64_t cells) : cells_(cells) {}

  // Returns how many pairs of cells a search for the key looks at.
  std::uint64_t PairsFor(Key key) const { return Find(key) / 2 + 1; }
  void Add(Key key) {
    if (Value(key) != body::kFree) cells_[CellAt(key, Find(key))] = key;
  }

 private:
  // Returns the place of the `at`-th cell of the key's way.
  std::uint64_t CellAt(Key key, std::uint64_t at) const {
    const std::uint64_t hash = body::PlaceHash(kTestSecret.low(), kTestSecret.high())(Value(key));
    const std::uint64_t lines = cells_.size() / 4;
    const std::uint64_t begin = hash % cells_.size();
    const std::uint64_t line = (begin / 4 + at / 4 * ((hash >> 32) | 1)) % lines;
    const std::uint64_t pair = begin / 2 % 2 == 0 ? at / 2 % 2 : 1 - at / 2 % 2;
    return 4 * line + 2 * pair + at % 2;
  }
  // Returns the first cell of the key's way that has it, or is free.
  std::uint64_t Find(Key key) const {
    if (Value(key) == body::kFree) return 0;
    for (std::uint64_t at = 0;; ++at) {
      const std::optional<Key>& there = cells_[CellAt(key, at)];
      if (!there || *there == key) return at;
    }
  }

  std::vector<std::optional<Key>> cells_;
};

class ProbeSamples : public ContractTest {
 protected:
  void SetUp() override {
    if (OverRanks()) GTEST_SKIP() << "this is about one process";
  }

  void MakeShard(const TableOptions& options, int ranks = 1) {
    bucket_map_ = EvenBucketMap(ranks);
    shard_ = std::move(*device().MakeShard(options, {Rank{0}, ranks, bucket_map_, kTestSecret}));
  }

  void Bring(const std::vector<std::uint64_t>& keys, bool insert = true) {
    DeviceBatch batch(device(), OneKeyABag(keys));
    ASSERT_TRUE(insert ? shard_->PrepareInsert(batch.View()).Insert().ok()
                       : shard_->PrepareFind(batch.View()).ok());
    device().Wait();
  }
  void Erase(const std::vector<std::uint64_t>& keys) {
    DeviceBatch batch(device(), OneKeyABag(keys));
    auto erasable = shard_->PrepareErase(batch.View());
    ASSERT_TRUE(erasable.ok());
    std::move(*erasable).Erase();
  }
  // Lookups of one key without a row.
  void BringNothingNew(std::uint64_t batches) {
    for (std::uint64_t i = 0; i < batches; ++i) Bring({1}, false);
  }

  const ProbeLengths& Sampled() { return shard_->SampledProbes(); }
  std::uint64_t Count() {
    std::uint64_t count = 0;
    for (const std::uint64_t bucket : Sampled().buckets) count += bucket;
    return count;
  }

  // Whether the key is the shard's rank's.
  bool IsMine(std::uint64_t key) const { return bucket_map_[BucketOf(Key{key})] == 0; }
  // The keys of the shard's rank that are sampled of a batch.
  std::vector<Key> Chosen(const std::vector<std::uint64_t>& keys) const {
    std::vector<Key> mine;
    for (const std::uint64_t key : keys) {
      if (IsMine(key)) mine.push_back(Key{key});
    }
    if (mine.size() <= kMost) return mine;
    std::vector<Key> chosen;
    for (std::size_t i = 0; i < kMost; ++i) chosen.push_back(mine[i * mine.size() / kMost]);
    return chosen;
  }

  BucketMap bucket_map_ = {};
  std::unique_ptr<Shard> shard_;
};
SLOTWISE_ON_EVERY_BACKEND(ProbeSamples);

TEST_P(ProbeSamples, OfAnEmptyTableAreOfLengthOne) {
  for (const std::size_t keys : {1, 2, 255, 256, 257, 5000}) {
    MakeShard(MakeOptions(1));
    EXPECT_EQ(Sampled(), ProbeLengths{});
    Bring(KeyRange(10, keys));
    ProbeLengths expected;
    for (std::size_t i = 0; i < std::min(keys, kMost); ++i) expected.Count(1);
    EXPECT_EQ(Sampled(), expected) << keys;
  }
}

TEST_P(ProbeSamples, AreOfTheFirstBatchAndOfEvery1024th) {
  MakeShard(MakeOptions(1));
  Bring({}, false);
  EXPECT_EQ(Count(), 0U) << "a batch without keys has no turn";
  Bring(KeyRange(0, 100));
  EXPECT_EQ(Count(), 100U);
  BringNothingNew(kDistance - 1);
  EXPECT_EQ(Count(), 100U);
  Bring(KeyRange(0, 7), false);
  EXPECT_EQ(Count(), 107U);
  BringNothingNew(kDistance - 1);
  EXPECT_EQ(Count(), 107U);
  BringNothingNew(1);
  EXPECT_EQ(Count(), 108U);
}

TEST_P(ProbeSamples, AreOfTheFirstBatchBehindARehash) {
  MakeShard(MakeOptions(1));
  Bring(KeyRange(0, 10));
  const std::uint64_t cells = shard_->Usage().cells;
  Bring(KeyRange(0, 10), false);
  ASSERT_EQ(Count(), 10U);
  Bring(KeyRange(0, cells + 1));
  ASSERT_GT(shard_->Usage().cells, cells);
  EXPECT_EQ(Count(), 10U) << "the batch was searched for in the table before";
  Bring(KeyRange(0, 20), false);
  EXPECT_EQ(Count(), 30U);
  BringNothingNew(kDistance - 1);
  EXPECT_EQ(Count(), 30U);
  BringNothingNew(1);
  EXPECT_EQ(Count(), 31U);
}

// Keys come one by one, some of them to one place, so that all is known of where they lie. The table is as
// full as it may be, so some searches are long. Then a batch has keys that are there, absent and erased.
TEST_P(ProbeSamples, AreAsLongAsThoseOfAPlainTable) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    TableOptions options = MakeOptions(1);
    options.max_load = TableOptions::kMostMaxLoad;
    MakeShard(options, ranks);
    const std::uint64_t cells = shard_->Usage().cells;
    const auto rows = static_cast<std::uint64_t>(static_cast<float>(cells) * options.max_load);
    PlainTable plain(cells);

    std::vector<std::uint64_t> there;
    Random random(20261125);
    const auto add_mine = [&](std::uint64_t key) {
      if (IsMine(key) && there.size() < rows) there.push_back(key);
    };
    for (const std::uint64_t key : KeysOfPlace(kTestSecret, cells - 1, 5, 40)) add_mine(key);
    add_mine(body::kFree);
    while (there.size() < rows) add_mine(random.Bits());

    ProbeLengths expected;
    std::uint64_t batches = 0;
    for (const std::uint64_t key : there) {
      if (batches++ % kDistance == 0) expected.Count(plain.PairsFor(Key{key}));
      Bring({key});
      plain.Add(Key{key});
    }
    ASSERT_EQ(shard_->Usage().cells, cells) << "no rehash";
    const std::vector<std::uint64_t> erased(there.begin() + 3, there.begin() + 30);
    ASSERT_NE(batches++ % kDistance, 0U);
    Erase(erased);
    EXPECT_EQ(Sampled(), expected);
    BringNothingNew(kDistance - batches % kDistance);
    EXPECT_EQ(Sampled(), expected);
    const std::uint64_t count = Count();

    std::vector<std::uint64_t> batch{body::kFree};
    batch.insert(batch.end(), there.begin(), there.begin() + 90);
    for (int i = 0; i < 200; ++i) batch.push_back(random.Bits());
    for (std::size_t i = 90; i < there.size(); ++i) batch.push_back(there[i]);
    Bring(batch, false);
    const std::vector<Key> chosen = Chosen(batch);
    ASSERT_EQ(chosen.size(), kMost);
    for (const Key key : chosen) expected.Count(plain.PairsFor(key));
    EXPECT_EQ(Sampled(), expected);
    EXPECT_GT(std::ranges::count_if(expected.buckets, [](std::uint64_t searches) { return searches > 0; }),
              4);
    EXPECT_EQ(Count(), count + kMost);
  }
}

TEST_P(ProbeSamples, OfKeysThatAreAllOtherRanksAreNone) {
  MakeShard(MakeOptions(1), 2);
  std::vector<std::uint64_t> others;
  for (std::uint64_t key = 0; others.size() < 50; ++key) {
    if (!IsMine(key)) others.push_back(key);
  }
  Bring(others);
  EXPECT_EQ(Sampled(), ProbeLengths{});
}

TEST_P(ProbeSamples, ChangeNothing) {
  MakeShard(MakeOptions(2));
  Bring(KeyRange(0, 300));
  const DigestSums before = shard_->Digest();
  BringNothingNew(kDistance + 1);
  EXPECT_EQ(shard_->Digest(), before);
  EXPECT_EQ(shard_->Usage().rows, 300U);
}

TEST(ProbeLengthsTest, BucketsEndAtPowersOfTwo) {
  const std::array<std::pair<std::uint64_t, std::size_t>, 10> cases{{{1, 0},
                                                                     {2, 1},
                                                                     {3, 2},
                                                                     {4, 2},
                                                                     {5, 3},
                                                                     {8, 3},
                                                                     {9, 4},
                                                                     {1024, 10},
                                                                     {1025, 11},
                                                                     {std::uint64_t{1} << 40, 11}}};
  for (const auto& [pairs, bucket] : cases) {
    ProbeLengths lengths;
    lengths.Count(pairs);
    EXPECT_EQ(lengths.buckets[bucket], 1U) << pairs;
    EXPECT_EQ(lengths.sum, pairs);
    if (bucket + 1 < ProbeLengths::kBuckets) {
      EXPECT_LE(pairs, ProbeLengths::BoundOf(bucket));
    }
  }
}

}  // namespace
}  // namespace slotwise::test
