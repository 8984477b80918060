#include "server/intake/rare_log.h"

#include <gtest/gtest.h>

namespace slotwise {
namespace {

TEST(RareLog, LetsOneLineThroughInAnIntervalAndCountsTheOthers) {
  using std::chrono::seconds;
  const RareLog::Clock::time_point start{};
  RareLog log(seconds(10));
  EXPECT_EQ(log.Pass(start), 0U);
  EXPECT_EQ(log.Pass(start), std::nullopt);
  EXPECT_EQ(log.Pass(start + seconds(9)), std::nullopt);
  EXPECT_EQ(log.Pass(start + seconds(10)), 2U);
  EXPECT_EQ(log.Pass(start + seconds(19)), std::nullopt);
  EXPECT_EQ(log.Pass(start + seconds(40)), 1U);
  EXPECT_EQ(log.Pass(start + seconds(50)), 0U);
}

TEST(RareLog, LetsSeveralLinesThroughInAnInterval) {
  using std::chrono::seconds;
  const RareLog::Clock::time_point start{};
  RareLog log(seconds(10), 2);
  EXPECT_EQ(log.Pass(start), 0U);
  EXPECT_EQ(log.Pass(start + seconds(9)), 0U);
  EXPECT_EQ(log.Pass(start + seconds(9)), std::nullopt);
  EXPECT_EQ(log.Pass(start + seconds(10)), 1U);
  EXPECT_EQ(log.Pass(start + seconds(10)), 0U);
  EXPECT_EQ(log.Pass(start + seconds(10)), std::nullopt);
}

// What is taken once is in no later line, and nothing is taken of an interval that still runs.
TEST(RareLog, GivesWhatItHeldBackOnceTheIntervalIsOver) {
  using std::chrono::seconds;
  const RareLog::Clock::time_point start{};
  RareLog log(seconds(10));
  EXPECT_EQ(log.TakeHeldBack(start + seconds(100)), 0U);
  EXPECT_EQ(log.Pass(start), 0U);
  EXPECT_EQ(log.TakeHeldBack(start + seconds(10)), 0U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(log.Pass(start + seconds(1)), std::nullopt);
  EXPECT_EQ(log.TakeHeldBack(start + seconds(9)), 0U);
  EXPECT_EQ(log.TakeHeldBack(start + seconds(10)), 3U);
  EXPECT_EQ(log.TakeHeldBack(start + seconds(11)), 0U);
  EXPECT_EQ(log.Pass(start + seconds(11)), 0U);
}

}  // namespace
}  // namespace slotwise
