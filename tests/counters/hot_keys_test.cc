// Tests which keys are counted as the most frequent.
#include "server/counters/hot_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <vector>

namespace slotwise {
namespace {

constexpr std::uint64_t kNoWindow = ~std::uint64_t{0};

SpaceSaving CountedBy(std::size_t most, std::uint64_t window, const std::vector<std::uint64_t>& keys) {
  SpaceSaving sketch(most, window);
  for (const std::uint64_t key : keys) sketch.Count(Key{key});
  return sketch;
}

TEST(SpaceSavingTest, NothingWasSampled) {
  const HotKeyStats stats = SpaceSaving(4, kNoWindow).Read();
  EXPECT_EQ(stats.sampled, 0U);
  EXPECT_TRUE(stats.keys.empty());
  EXPECT_EQ(stats.ShareOf(10), 0);
}

TEST(SpaceSavingTest, AsManyKeysAsItCountsAreExact) {
  const HotKeyStats stats = CountedBy(3, kNoWindow, {9, 5, 9, 1, 5, 9}).Read();
  const std::vector<HotKeyStats::Counted> keys{{Key{9}, 3, 3}, {Key{5}, 2, 2}, {Key{1}, 1, 1}};
  EXPECT_EQ(stats.sampled, 6U);
  EXPECT_EQ(stats.keys, keys);
  EXPECT_EQ(stats.ShareOf(0), 0);
  EXPECT_EQ(stats.ShareOf(1), 3.0 / 6);
  EXPECT_EQ(stats.ShareOf(2), 5.0 / 6);
  EXPECT_EQ(stats.ShareOf(100), 1);
}

TEST(SpaceSavingTest, ANewKeyTakesThePlaceOfTheLeastCounted) {
  const HotKeyStats stats = CountedBy(2, kNoWindow, {7, 7, 7, 8, 8, 1}).Read();
  const std::vector<HotKeyStats::Counted> keys{{Key{7}, 3, 3}, {Key{1}, 1, 3}};
  EXPECT_EQ(stats.keys, keys);
}

TEST(SpaceSavingTest, KeysOfTheSameCountAreSortedByKey) {
  const HotKeyStats stats = CountedBy(3, kNoWindow, {8, 2, 5}).Read();
  const std::vector<HotKeyStats::Counted> keys{{Key{2}, 1, 1}, {Key{5}, 1, 1}, {Key{8}, 1, 1}};
  EXPECT_EQ(stats.keys, keys);
}

TEST(SpaceSavingTest, CountsAreHalvedSoThatTheyAreOfLate) {
  std::vector<std::uint64_t> keys(8, 1);
  keys.insert(keys.end(), 20, 2);
  const HotKeyStats stats = CountedBy(2, 8, keys).Read();
  EXPECT_EQ(stats.keys.front().key, Key{2});
  EXPECT_LE(stats.sampled, 8U);
  EXPECT_GE(stats.ShareOf(1), 0.8);
  EXPECT_LE(stats.ShareOf(2), 1);
}

TEST(SpaceSavingTest, WhoIsReplacedAfterCountsWereHalvedHasCountedLeast) {
  const HotKeyStats stats = CountedBy(2, 8, {1, 1, 1, 1, 2, 2, 3, 1, 4}).Read();
  const std::vector<HotKeyStats::Counted> keys{{Key{1}, 2, 2}, {Key{4}, 1, 2}};
  EXPECT_EQ(stats.sampled, 5U);
  EXPECT_EQ(stats.keys, keys);
}

TEST(SpaceSavingTest, WhatIsAKeysOwnIsHalvedToo) {
  SpaceSaving sketch(8, 100);
  std::mt19937_64 random(1);
  for (int n = 0; n < 2000; ++n) {
    sketch.Count(Key{random() % 40});
    for (const auto& [key, at_least, at_most] : sketch.Read().keys)
      ASSERT_LE(at_least, at_most) << Value(key);
  }
}

// The bounds that the paper proves, on keys drawn by Zipf's law, against exact counts.
TEST(SpaceSavingTest, BoundsHoldWhateverComes) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    std::mt19937_64 random(seed);
    std::vector<double> weights;
    for (int i = 1; i <= 2000; ++i) weights.push_back(1.0 / i);
    std::discrete_distribution<std::uint64_t> zipf(weights.begin(), weights.end());
    constexpr std::size_t kMost = 64;
    SpaceSaving sketch(kMost, kNoWindow);
    std::map<Key, std::uint64_t> exact;
    for (std::uint64_t n = 1; n <= 20'000; ++n) {
      const Key key{zipf(random)};
      ++exact[key];
      sketch.Count(key);
      if (n % 500 != 0) continue;
      const HotKeyStats stats = sketch.Read();
      ASSERT_EQ(stats.sampled, n);
      ASSERT_EQ(stats.keys.size(), std::min(kMost, exact.size()));
      std::uint64_t counts = 0, least = n;
      for (const auto& [its, at_least, at_most] : stats.keys) {
        ASSERT_LE(at_least, exact[its]);
        ASSERT_GE(at_most, exact[its]);
        ASSERT_LE(at_most - at_least, n / kMost);
        counts += at_most;
        least = std::min(least, at_most);
      }
      // Every occurrence is in one count, and a key that is not counted came no more often than the least.
      ASSERT_EQ(counts, n);
      for (const auto& [key_of, count] : exact) {
        const auto is_it = [&](const HotKeyStats::Counted& each) { return each.key == key_of; };
        ASSERT_TRUE(count <= least || std::ranges::any_of(stats.keys, is_it)) << Value(key_of);
      }
    }
  }
}

// One key in four is the same, at a period that a fixed distance would meet always or never.
TEST(HotKeysTest, ASampleHasTheSharesOfAllKeys) {
  for (const std::size_t batch : {std::size_t{26}, std::size_t{1000}, std::size_t{1} << 20}) {
    HotKeys hot;
    std::vector<Key> keys(batch);
    std::uint64_t n = 0;
    while (n < std::uint64_t{1} << 22) {
      for (Key& key : keys) {
        key = n % 4 == 0 ? Key{7} : Key{1000 + n};
        ++n;
      }
      hot.Sample(keys);
    }
    const HotKeyStats stats = hot.Read();
    EXPECT_NEAR(static_cast<double>(stats.sampled), static_cast<double>(n) / HotKeys::kDistance,
                0.1 * static_cast<double>(n) / HotKeys::kDistance);
    ASSERT_FALSE(stats.keys.empty());
    EXPECT_EQ(stats.keys.front().key, Key{7});
    EXPECT_NEAR(stats.ShareOf(1), 0.25, 0.03) << batch;
    EXPECT_LE(stats.keys.size(), HotKeys::kKeys);
  }
}

TEST(HotKeysTest, KeysThatAllDifferAreNotHot) {
  HotKeys hot;
  std::vector<Key> keys(std::size_t{1} << 22);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = Key{i};
  hot.Sample(keys);
  EXPECT_LE(hot.Read().ShareOf(1), 0.001);
}

}  // namespace
}  // namespace slotwise
