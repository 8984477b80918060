// Batches are cut into the parts that docs/clients.md promises.
#include "client/cpp/cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace slotwise::client {
namespace {

constexpr std::uint64_t kMib = 1 << 20;

std::vector<SampleRange> CutOne(std::uint64_t samples, std::uint64_t bytes, std::uint64_t ranks,
                                std::uint64_t channels) {
  std::vector<SampleRange> ranges;
  for (const Share& share : Cut(std::array{samples}, bytes, ranks, channels)) ranges.push_back(share.at(0));
  return ranges;
}

TEST(Cut, CoversTheSamplesOnceAndInOrder) {
  for (const std::uint64_t samples : {0, 1, 2, 3, 5, 64, 1000, 65536}) {
    for (const std::uint64_t ranks : {1, 2, 3, 4, 8}) {
      for (const std::uint64_t size :
           {0 * kMib, std::uint64_t{1}, std::uint64_t{100 << 10}, kMib, 5 * kMib, 700 * kMib}) {
        const auto ranges = CutOne(samples, size, ranks, 2);
        ASSERT_FALSE(ranges.empty());
        EXPECT_EQ(ranges.front().first, 0u);
        EXPECT_EQ(ranges.back().last, samples);
        for (std::size_t i = 1; i < ranges.size(); ++i) EXPECT_EQ(ranges[i].first, ranges[i - 1].last);
        const auto [least, most] = std::ranges::minmax(ranges, {}, &SampleRange::size);
        EXPECT_LE(most.size() - least.size(), 1u);
        EXPECT_TRUE(least.size() > 0 || samples == 0);
      }
    }
  }
}

// Other numbers would change the sums' order, and so the bytes of tables that older clients trained.
TEST(Cut, MakesAsManyPartsAsItAlwaysDid) {
  EXPECT_EQ(CutOne(1000, 127 << 10, 4, 2).size(), 1u);
  EXPECT_EQ(CutOne(1000, 256 << 10, 4, 2).size(), 4u);
  EXPECT_EQ(CutOne(65536, 7 * kMib, 4, 2).size(), 4u);
  EXPECT_EQ(CutOne(65536, 8 * kMib, 4, 2).size(), 8u);
  EXPECT_EQ(CutOne(65536, 33 * kMib, 4, 2).size(), 12u);
  EXPECT_EQ(CutOne(65536, 100 * kMib, 3, 2).size(), 27u);
  EXPECT_EQ(CutOne(5, 100 * kMib, 3, 2).size(), 5u);
  EXPECT_EQ(CutOne(7, 3 * kMib, 2, 1), (std::vector<SampleRange>{{0, 3}, {3, 7}}));
}

TEST(Cut, GivesEveryRequestAShareOfEveryBatch) {
  const std::vector<Share> shares = Cut(std::array<std::uint64_t, 3>{4, 0, 7}, 3 * kMib, 2, 1);
  EXPECT_EQ(shares, (std::vector<Share>{{{0, 2}, {0, 0}, {0, 3}}, {{2, 4}, {0, 0}, {3, 7}}}));
}

TEST(EvenShares, GivesEmptyOnesIfThereAreMorePartsThanSamples) {
  EXPECT_EQ(EvenShares(std::array<std::uint64_t, 1>{2}, 4),
            (std::vector<Share>{{{0, 0}}, {{0, 1}}, {{1, 1}}, {{1, 2}}}));
}

TEST(HalveUntilFit, HalvesDownToOneSample) {
  const std::vector<std::uint64_t> sizes{10, 10, 70, 10, 10, 10, 10, 10};
  const auto fits = [&](const Share& share) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = share[0].first; i < share[0].last; ++i) sum += sizes[i];
    return sum <= 40;
  };
  EXPECT_EQ(HalveUntilFit({{{0, 4}}, {{4, 8}}}, fits),
            (std::vector<Share>{{{0, 2}}, {{2, 3}}, {{3, 4}}, {{4, 8}}}));
}

TEST(HalveUntilFit, HalvesEveryBatchOfAShare) {
  const auto fits = [](const Share& share) { return share[0].size() + share[1].size() <= 3; };
  EXPECT_EQ(HalveUntilFit({{{0, 1}, {0, 6}}}, fits),
            (std::vector<Share>{{{0, 0}, {0, 3}}, {{0, 0}, {3, 4}}, {{0, 1}, {4, 6}}}));
}

TEST(PartBytes, CountsKeysWeightsAndOffsets) {
  const std::vector<Key> keys(6);
  const std::vector<float> weights(6);
  const std::vector<std::uint32_t> offsets{0, 1, 1, 4, 6};
  EXPECT_EQ(PartBytes({keys, offsets}, 2, {0, 2}), 6u * 8 + 5 * 4);
  EXPECT_EQ(PartBytes({keys, offsets}, 2, {1, 2}), 5u * 8 + 3 * 4);
  EXPECT_EQ(PartBytes({keys, offsets, weights}, 2, {1, 2}), 5u * 12 + 3 * 4);
  EXPECT_EQ(PartBytes({keys, {}}, 2, {1, 3}), 4u * 8);
  EXPECT_EQ(PartBytes({keys, {}, weights}, 2, {1, 3}), 4u * 12);
}

}  // namespace
}  // namespace slotwise::client
