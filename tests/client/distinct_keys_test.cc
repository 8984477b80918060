// A batch's distinct keys are complete, and rows copied as planned match the batch's keys.
#include "client/cpp/distinct_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace slotwise::client {
namespace {

constexpr std::uint64_t kSeed = 20261123;
constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();

std::vector<Key> KeysOf(const std::vector<std::uint64_t>& values) {
  std::vector<Key> keys;
  for (const std::uint64_t value : values) keys.push_back(Key{value});
  return keys;
}

// `count` keys, of which each may be one of `distinct`.
std::vector<Key> RandomKeys(std::mt19937_64& random, std::size_t count, std::uint64_t distinct) {
  std::vector<Key> keys(count);
  for (Key& key : keys) key = Key{random() % distinct * 0x9E3779B97F4A7C15ULL};
  return keys;
}

// Returns rows after the copies, if row i of the distinct keys arrives at place i. Rows are made of keys.
std::vector<float> RowsAfter(const DistinctKeys& found, std::size_t count, std::size_t dim) {
  std::vector<float> rows(count * dim, -1);
  for (std::size_t i = 0; i < found.keys.size(); ++i) {
    for (std::size_t e = 0; e < dim; ++e) {
      rows[i * dim + e] = static_cast<float>(Value(found.keys[i]) % 999'983 + e);
    }
  }
  CopyRows(found.copies, dim, rows);
  return rows;
}

TEST(DistinctKeysTest, AreTheFirstKeysButForRepeatedOnesThatHaveGivenWay) {
  const auto found = FindDistinctKeys(KeysOf({5, 7, 5, 9, 7, 5, 9, 4}), KeyHash(3), 1, 4);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->keys, KeysOf({5, 7, 4, 9}));
  EXPECT_EQ(found->copies, (std::vector<RowCopy>{{7, 2}, {6, 3}, {5, 0}, {4, 1}, {2, 0}}));
}

TEST(DistinctKeysTest, AreAWholeNumberOfSamplesBecauseRepeatedKeysStay) {
  const std::vector<Key> keys = KeysOf({5, 5, 7, 5, 5, 9});
  const auto found = FindDistinctKeys(keys, KeyHash(3), 2, kAny);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->keys, KeysOf({5, 9, 7, 5}));
  EXPECT_EQ(found->copies, (std::vector<RowCopy>{{5, 1}, {4, 0}, {1, 0}}));
  EXPECT_EQ(FindDistinctKeys(keys, KeyHash(3), 1, kAny)->keys.size(), 3u);
  EXPECT_EQ(FindDistinctKeys(keys, KeyHash(3), 3, kAny)->keys.size(), 3u);
  EXPECT_EQ(FindDistinctKeys(keys, KeyHash(3), 6, kAny)->keys, keys);
}

TEST(DistinctKeysTest, AreNoMoreThanAsked) {
  const std::vector<Key> keys = KeysOf({1, 2, 2, 3});
  EXPECT_TRUE(FindDistinctKeys(keys, KeyHash(3), 1, 3));
  EXPECT_FALSE(FindDistinctKeys(keys, KeyHash(3), 1, 2));
  EXPECT_FALSE(FindDistinctKeys(keys, KeyHash(3), 2, 3)) << "with those that stay there are four";
}

TEST(DistinctKeysTest, GiveBackEveryRowOfRandomBatches) {
  std::mt19937_64 random(kSeed);
  for (int batch = 0; batch < 400; ++batch) {
    const auto multiple = static_cast<std::uint32_t>(1 + random() % 7);
    const std::size_t count = multiple * (1 + random() % 700);
    const std::vector<Key> keys = RandomKeys(random, count, 1 + random() % (2 * count));
    const std::set<Key> distinct(keys.begin(), keys.end());
    const std::size_t sent = (distinct.size() + multiple - 1) / multiple * multiple;
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", batch " + std::to_string(batch));
    const auto found = FindDistinctKeys(keys, KeyHash(random()), multiple, sent);
    ASSERT_TRUE(found);
    ASSERT_EQ(found->keys.size(), sent);
    EXPECT_EQ(std::set<Key>(found->keys.begin(), found->keys.end()), distinct);
    for (const std::size_t dim : {1, 3}) {
      EXPECT_EQ(RowsAfter(*found, count, dim), RowsAfter({keys, {}}, count, dim));
    }
    EXPECT_LE(found->copies.size(), 2 * (count - distinct.size())) << "rows are copied that were in place";
  }
}

// The hash that shifts keys alone puts all of these into one chain.
TEST(DistinctKeysTest, AreFoundInOneLongChain) {
  std::vector<Key> keys;
  for (std::uint64_t i = 0; i < 3000; ++i) keys.push_back(Key{i % 1000});
  const KeyHash same(0);
  EXPECT_EQ(same(Key{0}, 16), same(Key{999}, 16));
  const auto found = FindDistinctKeys(keys, same, 1, kAny);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->keys, std::vector<Key>(keys.begin(), keys.begin() + 1000));
  EXPECT_EQ(RowsAfter(*found, 3000, 2), RowsAfter({keys, {}}, 3000, 2));
}

TEST(KeyHashTest, IsAnotherForEveryBatchSoThatCollisionsCannotBeChosen) {
  const KeyHash known(0);
  for (const KeyHash& hash : {KeyHash::Draw(), KeyHash::Draw(), known.Another()}) {
    std::set<std::uint32_t> met;
    for (std::uint64_t i = 0; i < 1000; ++i) met.insert(hash(Key{i << 20}, 20));
    EXPECT_GT(met.size(), 30u) << "keys that all collide under a known hash";
  }
  const KeyHash first = KeyHash::Draw();
  const KeyHash second = KeyHash::Draw();
  int same = 0;
  for (std::uint64_t i = 1; i <= 1000; ++i) same += first(Key{i}, 32) == second(Key{i}, 32) ? 1 : 0;
  EXPECT_LT(same, 10);
}

// Keys come in no order, so among the first 512 of a batch hardly any is repeated.
TEST(EstimateTest, IsNearTheShareOfRepeatedKeysWhateverTheirOrder) {
  std::mt19937_64 random(kSeed);
  for (const std::size_t count : {2000, 8192, 100'000}) {
    for (const double share : {0.0, 0.25, 0.5, 0.9}) {
      const auto distinct = static_cast<std::size_t>((1 - share) * static_cast<double>(count));
      std::vector<Key> keys(count);
      for (std::size_t i = 0; i < count; ++i) keys[i] = Key{random() * 2 + 1};
      for (std::size_t i = distinct; i < count; ++i) keys[i] = keys[i % distinct];
      std::ranges::shuffle(keys, random);
      for (int draw = 0; draw < 5; ++draw) {
        EXPECT_NEAR(EstimateRepeatedShare(keys, KeyHash(random())), share, 0.2)
            << "seed " << kSeed << ", " << count << " keys";
      }
    }
  }
}

TEST(EstimateTest, OfOneKeyThatIsEverywhereIsNearOne) {
  const std::vector<Key> keys(5000, Key{77});
  for (std::uint64_t draw = 0; draw < 50; ++draw) {
    EXPECT_GT(EstimateRepeatedShare(keys, KeyHash(draw * 0x9E3779B97F4A7C15ULL)), 0.99);
  }
}

}  // namespace
}  // namespace slotwise::client
