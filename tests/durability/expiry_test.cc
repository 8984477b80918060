// An Expiry knows which steps' rows have expired, by the steps and the times at which a table was swept.
#include "server/durability/expiry.h"

#include <gtest/gtest.h>

#include <optional>

namespace slotwise {
namespace {

TEST(ExpiryTest, IsDueEverySixteenthOfTheTimeToLive) {
  TableOptions options;
  EXPECT_FALSE(Expiry().IsDueBySteps(options, 1'000'000));
  EXPECT_FALSE(Expiry().IsDueByTime(options, 1'000'000));
  for (const auto& [ttl, interval] : {std::pair{1U, 1U}, {15U, 1U}, {31U, 1U}, {32U, 2U}, {1600U, 100U}}) {
    options.ttl_steps = options.ttl_seconds = ttl;
    Expiry expiry;
    EXPECT_FALSE(expiry.IsDueBySteps(options, interval - 1)) << ttl;
    EXPECT_TRUE(expiry.IsDueBySteps(options, interval)) << ttl;
    expiry.NoteSweep(options, 3 * interval, 5000);
    EXPECT_FALSE(expiry.IsDueBySteps(options, 4 * interval - 1)) << ttl;
    EXPECT_TRUE(expiry.IsDueBySteps(options, 4 * interval)) << ttl;
    EXPECT_FALSE(expiry.IsDueByTime(options, 5000 + interval - 1)) << ttl;
    EXPECT_TRUE(expiry.IsDueByTime(options, 5000 + interval)) << ttl;
  }
}

TEST(ExpiryTest, KnowsTheLastStepThatHasExpired) {
  TableOptions options;
  options.ttl_steps = 10;
  Expiry expiry;
  EXPECT_EQ(expiry.LastExpired(options, 9, 0), std::nullopt);
  EXPECT_EQ(expiry.LastExpired(options, 10, 0), std::optional(0U));
  EXPECT_EQ(expiry.LastExpired(options, 25, 0), std::optional(15U));
  options.ttl_seconds = 100;
  expiry.marks = {{1000, 3}, {1050, 20}, {1060, 24}};
  EXPECT_EQ(expiry.LastExpired(options, 25, 1149), std::optional(15U)) << "the later of the two";
  EXPECT_EQ(expiry.LastExpired(options, 25, 1150), std::optional(20U));
  options.ttl_steps = 0;
  EXPECT_EQ(expiry.LastExpired(options, 25, 1099), std::nullopt);
  EXPECT_EQ(expiry.LastExpired(options, 25, 1100), std::optional(3U));
  EXPECT_EQ(expiry.LastExpired(options, 25, 9999), std::optional(24U));
}

TEST(ExpiryTest, MarksNothingTwice) {
  TableOptions options;
  options.ttl_seconds = 160;
  Expiry expiry;
  EXPECT_TRUE(expiry.NoteSweep(options, 0, 1000));
  EXPECT_FALSE(expiry.NoteSweep(options, 0, 1500)) << "the table has taken no step";
  EXPECT_FALSE(expiry.NoteSweep(options, 5, 900)) << "the clock was set back";
  EXPECT_TRUE(expiry.NoteSweep(options, 5, 1010));
  EXPECT_FALSE(expiry.NoteSweep(options, 6, 1019)) << "too near";
  EXPECT_EQ(expiry.marks, (std::vector<Expiry::Mark>{{1000, 0}, {1010, 5}}));
  EXPECT_EQ(expiry.swept_seconds, 1500U) << "time never falls";
  EXPECT_EQ(expiry.swept_steps, 0U);
}

// Old marks go once a newer one has expired too. Of every time to live, few enough stay for a checkpoint.
TEST(ExpiryTest, KeepsFewMarks) {
  TableOptions options;
  for (const std::uint64_t ttl : {1U, 16U, 31U, 32U, 47U, 3600U}) {
    options.ttl_seconds = ttl;
    Expiry expiry;
    std::size_t most = 0;
    std::uint64_t last = 0;
    for (std::uint64_t now = 1; now < 5 * ttl + 10; ++now) {
      expiry.NoteSweep(options, now, now);
      most = std::max(most, expiry.marks.size());
      const std::uint64_t interval = ttl < 16 ? 1 : ttl / 16;
      const auto expired = expiry.LastExpired(options, now, now);
      if (now > ttl + interval) {
        ASSERT_TRUE(expired.has_value()) << ttl;
        EXPECT_LE(*expired, now - ttl) << "no row goes before its time";
        EXPECT_GT(*expired + interval, now - ttl) << "and none stays for long";
      }
      EXPECT_GE(expired.value_or(0), last);
      last = expired.value_or(0);
    }
    EXPECT_LE(most, Expiry::kMostMarks) << ttl;
  }
}

TEST(ExpiryTest, KeepsFewMarksWhateverTheTimeToLiveWas) {
  TableOptions options;
  Expiry expiry;
  std::uint64_t seconds = 1000, steps = 0;
  for (const std::uint64_t ttl : {320U, 3200U, 32U, 64'000U, 1U, 500U}) {
    options.ttl_seconds = ttl;
    expiry.Alter(options);
    EXPECT_LE(expiry.marks.size(), Expiry::kMostMarks);
    for (int sweep = 0; sweep < 100; ++sweep) {
      seconds += Expiry::Interval(ttl);
      expiry.NoteSweep(options, ++steps, seconds);
      ASSERT_LE(expiry.marks.size(), Expiry::kMostMarks) << ttl << ", " << sweep;
    }
  }
  options.ttl_seconds = 0;
  expiry.Alter(options);
  EXPECT_TRUE(expiry.marks.empty());
  options.ttl_steps = 10;
  expiry.NoteSweep(options, 77, 0);
  expiry.Alter(options);
  EXPECT_EQ(expiry.swept_steps, 77U);
  options.ttl_steps = 0;
  expiry.Alter(options);
  EXPECT_EQ(expiry.swept_steps, 0U);
}

}  // namespace
}  // namespace slotwise
