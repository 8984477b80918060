// A rank's limit does not affect keys of ordinary batches, and bounds chosen ones.
#include "server/engine/rank_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/shard.h"

namespace slotwise {
namespace {

// Chernoff's bound of the logarithm of the probability that a rank gets more than `most` keys of which it
// gets `mean` on average.
double LogOfRefusal(double mean, double most) {
  const double ratio = most / mean;
  return ratio <= 1 ? 0 : -mean * (ratio * std::log(ratio) - ratio + 1);
}

TEST(ARanksLimit, IsAMultipleOfItsShareAndSomeRowsMore) {
  EXPECT_EQ(RankLimit{}.RowsOf(1'000'000, 2), 750'000u + 1024);
  EXPECT_EQ(RankLimit{}.RowsOf(1'000'000, 4), 375'000u + 1024);
  EXPECT_EQ((RankLimit{.percent = 200, .slack = 0}.RowsOf(1'000'000, 8)), 250'000u);
  EXPECT_EQ((RankLimit{.percent = 110, .slack = 3}.RowsOf(10, 2)), 9u);
  EXPECT_EQ((RankLimit{.percent = 150, .slack = 0}.RowsOf(1001, 2)), 752u) << "rounded up, twice";
}

TEST(ARanksLimit, IsAllRowsOfSmallTablesAndOfOneRank) {
  EXPECT_EQ(RankLimit{}.RowsOf(1'000'000, 1), 1'000'000u);
  EXPECT_EQ(RankLimit{}.RowsOf(4096, 2), 4096u);
  EXPECT_EQ(RankLimit{}.RowsOf(1024, 4096), 1024u);
  EXPECT_EQ((RankLimit{.percent = 200}.RowsOf(1'000'000, 2)), 1'000'000u) << "a multiple that is the whole";
  EXPECT_EQ((RankLimit{.percent = 1'000'000}.RowsOf(std::uint64_t{1} << 40, 4096)), std::uint64_t{1} << 40);
}

TEST(ARanksLimit, IsNeverMetByKeysThatWereNotChosen) {
  for (const std::uint32_t percent : {110U, 150U}) {
    for (const int ranks : {2, 3, 4, 7, 64, 100, 1000, 3000, 4096}) {
      const BucketMap owners = EvenBucketMap(ranks);
      std::uint64_t buckets = 0;  // of the rank that has the most
      for (int rank = 0; rank < ranks; ++rank) {
        buckets = std::max<std::uint64_t>(buckets, std::ranges::count(owners, rank));
      }
      for (std::uint64_t rows = 1; rows <= std::uint64_t{1} << 40; rows += rows / 3 + 1) {
        const std::uint64_t most = RankLimit{.percent = percent}.RowsOf(rows, ranks);
        if (most == rows) continue;  // no rank can have more
        const double mean = static_cast<double>(rows) * static_cast<double>(buckets) / kBuckets;
        EXPECT_LT(LogOfRefusal(mean, static_cast<double>(most)) / std::log(10), percent == 150 ? -339 : -83)
            << percent << " percent of " << rows << " rows on " << ranks << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace slotwise
