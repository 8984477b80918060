// Batches are cut into the parts, and parts put into the requests, that docs/clients.md promises.
#include "client/cpp/cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace slotwise::client {
namespace {

constexpr std::uint64_t kMib = 1 << 20;

std::vector<SampleRange> CutOne(std::uint64_t samples, std::uint64_t bytes, std::uint64_t ranks,
                                std::uint64_t channels) {
  const std::array<BatchSize, 1> batch{{{samples, bytes}}};
  const CutCounts counts = CountsFor(batch, ranks, channels);
  EXPECT_EQ(counts.requests, counts.parts) << "every part of a batch that is alone is a request";
  return EvenParts(samples, counts.parts);
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

// How many requests and parts there are of batches of 1000 samples each.
std::array<std::uint64_t, 2> Counts(const std::vector<std::uint64_t>& bytes, std::uint64_t ranks,
                                    std::uint64_t channels) {
  std::vector<BatchSize> batches;
  for (const std::uint64_t size : bytes) batches.push_back({size > 0 ? 1000u : 0u, size});
  const CutCounts counts = CountsFor(batches, ranks, channels);
  return {counts.requests, counts.parts};
}
using Pair = std::array<std::uint64_t, 2>;

TEST(CountsFor, CutsSeveralBatchesNoMoreThanTheirRequestsWant) {
  EXPECT_EQ(Counts(std::vector(26, 2 * kMib), 1, 2), (Pair{13, 1}));
  EXPECT_EQ(Counts(std::vector(26, 4 * kMib), 1, 2), (Pair{26, 1}));
  EXPECT_EQ(Counts(std::vector(26, 4 * kMib + 1), 1, 2), (Pair{27, 2}));
  EXPECT_EQ(Counts(std::vector(26, 8 * kMib), 1, 2), (Pair{52, 2}));
  EXPECT_EQ(Counts(std::vector(26, kMib >> 10), 1, 2), (Pair{1, 1})) << "too small for two requests";
}

TEST(CountsFor, GivesEveryRankARequest) {
  EXPECT_EQ(Counts({kMib, kMib}, 8, 1), (Pair{8, 4}));
  EXPECT_EQ(Counts({kMib, kMib, kMib}, 8, 1), (Pair{8, 3}));
  EXPECT_EQ(Counts({kMib, kMib, kMib}, 1, 2), (Pair{2, 1})) << "every channel";
}

TEST(CountsFor, CutsTheLargestBatchIntoPartsThatARequestMayHave) {
  EXPECT_EQ(Counts({20 * kMib, kMib, kMib, kMib}, 1, 2), (Pair{6, 5}));
  EXPECT_EQ(CountsFor(std::array<BatchSize, 2>{{{30, 20 * kMib}, {1000, kMib}}}, 1, 2).parts, 5u);
  EXPECT_EQ(CountsFor(std::array<BatchSize, 2>{{{3, 20 * kMib}, {2, kMib}}}, 1, 2).parts, 3u)
      << "no batch has as many samples";
}

TEST(CountsFor, ReckonsWithBatchesThatHaveSamples) {
  EXPECT_EQ(Counts({0, 6 * kMib, 0, 0}, 3, 2), (Pair{6, 6}));
  EXPECT_EQ(Counts({0, 0, 0}, 4, 2), (Pair{1, 1}));
}

TEST(EvenParts, GivesEmptyOnesIfThereAreMorePartsThanSamples) {
  EXPECT_EQ(EvenParts(2, 4), (std::vector<SampleRange>{{0, 0}, {0, 1}, {1, 1}, {1, 2}}));
  EXPECT_EQ(EvenParts(0, 2), (std::vector<SampleRange>{{0, 0}, {0, 0}}));
}

TEST(HalveUntilFit, HalvesDownToOneSample) {
  const std::vector<std::uint64_t> sizes{10, 10, 70, 10, 10, 10, 10, 10};
  const auto fits = [&](SampleRange part) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = part.first; i < part.last; ++i) sum += sizes[i];
    return sum <= 40;
  };
  EXPECT_EQ(HalveUntilFit({{0, 4}, {4, 8}}, fits),
            (std::vector<SampleRange>{{0, 2}, {2, 3}, {3, 4}, {4, 8}}));
}

// Groups pieces of these weights, of a table each, that take as many bytes in a message. Returns how many
// pieces each request has.
std::vector<std::size_t> Grouped(const std::vector<std::uint64_t>& weights, std::uint64_t requests,
                                 std::uint64_t room) {
  Pieces pieces;
  for (std::size_t table = 0; table < weights.size(); ++table) pieces.push_back({table, 0, {0, 1}});
  const auto groups = Group(pieces, requests, room, [&](const Piece& piece) {
    return PieceSize{weights[piece.table], weights[piece.table]};
  });
  std::vector<std::size_t> sizes;
  Pieces all;
  for (const Pieces& group : groups) {
    sizes.push_back(group.size());
    all.insert(all.end(), group.begin(), group.end());
  }
  EXPECT_EQ(all, pieces) << "every piece once, in order";
  return sizes;
}

TEST(Group, MakesRequestsOfEvenWeight) {
  constexpr std::uint64_t kMuch = 1 << 30;
  EXPECT_EQ(Grouped(std::vector(26, 2 * kMib), 13, kMuch), std::vector<std::size_t>(13, 2));
  EXPECT_EQ(Grouped(std::vector(52, 4 * kMib), 52, kMuch), std::vector<std::size_t>(52, 1));
  EXPECT_EQ(Grouped(std::vector(7, kMib), 2, kMuch), (std::vector<std::size_t>{3, 4}));
  EXPECT_EQ(Grouped({6, 1, 1, 1, 1, 1, 1, 6}, 3, kMuch), (std::vector<std::size_t>{1, 6, 1}));
  EXPECT_EQ(Grouped({1, 100, 1}, 4, kMuch), (std::vector<std::size_t>{1, 1, 1}));
}

TEST(Group, TakesPiecesWithoutWeightAlong) {
  EXPECT_EQ(Grouped({0, 0, 0}, 1, 100), (std::vector<std::size_t>{3}));
  EXPECT_EQ(Grouped({0, 5, 0, 5, 0}, 2, 100), (std::vector<std::size_t>{2, 3}));
}

TEST(Group, KeepsRequestsWithinTheirRoom) {
  EXPECT_EQ(Grouped({4, 4, 4, 4, 4}, 1, 8), (std::vector<std::size_t>{2, 2, 1}));
  EXPECT_EQ(Grouped({4, 4, 4, 4, 4}, 1, 7), std::vector<std::size_t>(5, 1));
  EXPECT_EQ(Grouped({4, 9, 4}, 1, 8), std::vector<std::size_t>(3, 1)) << "one alone may be larger";
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
