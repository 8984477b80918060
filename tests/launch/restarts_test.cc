// Tests when a server that has ended is started again.
#include "server/launch/restarts.h"

#include <gtest/gtest.h>

namespace slotwise::launch {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kKilled = 137;

// A clock and the policy that it is for.
class RestartsTest : public testing::Test {
 protected:
  // Returns the wait after a server that served for so long and ended with `exit_code`, or -1 ms: it gives
  // up. Time passes as if the wait had been waited.
  milliseconds After(Clock::duration served_for, int exit_code = kKilled) {
    now_ += served_for;
    const auto decision = restarts_.After(
        {.exit_code = exit_code, .served = served_for.count() > 0, .served_for = served_for}, now_);
    const auto* restart = std::get_if<Restart>(&decision);
    if (restart == nullptr) return milliseconds(-1);
    now_ += restart->wait;
    return restart->wait;
  }

  Clock::time_point now_{hours(1)};
  Restarts restarts_{RestartLimits{}};
};

constexpr milliseconds kGivesUp{-1};

TEST_F(RestartsTest, WaitsDoubleToTheLongest) {
  for (const int wait : {1, 2, 4, 8, 16, 32, 60, 60, 60, 60}) EXPECT_EQ(After(seconds(1)), seconds(wait));
}

TEST_F(RestartsTest, ALongServiceBeginsWithTheFirstWaitAgain) {
  EXPECT_EQ(After(seconds(1)), seconds(1));
  EXPECT_EQ(After(seconds(59)), seconds(2));
  EXPECT_EQ(After(seconds(60)), seconds(1));
  EXPECT_EQ(After(seconds(1)), seconds(2));
}

TEST_F(RestartsTest, GivesUpAtTheLimitWithinItsTime) {
  for (int i = 0; i < 10; ++i) EXPECT_NE(After(seconds(1)), kGivesUp);
  EXPECT_EQ(After(seconds(1)), kGivesUp);
}

TEST_F(RestartsTest, RestartsOfLongAgoDoNotCount) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(After(seconds(600)), seconds(1));
}

TEST_F(RestartsTest, AServerThatNeverServedAndWasNotKilledIsNotStartedAgain) {
  EXPECT_EQ(After(seconds(0), 1), kGivesUp);
}

TEST_F(RestartsTest, AServerThatNeverServedAndWasKilledIs) {
  EXPECT_EQ(After(seconds(0), 129), seconds(1));
  EXPECT_EQ(After(seconds(0), 128), kGivesUp);
}

TEST_F(RestartsTest, ARefusalAfterAServiceMayPass) {
  EXPECT_EQ(After(seconds(100)), seconds(1));
  for (int i = 0; i < 9; ++i) EXPECT_NE(After(seconds(0), 1), kGivesUp);
  EXPECT_EQ(After(seconds(0), 1), kGivesUp);
}

TEST(Restarts, NoneAllowedMeansNone) {
  Restarts none{RestartLimits{.most = 0}};
  EXPECT_TRUE(std::holds_alternative<GiveUp>(
      none.After({.exit_code = kKilled, .served = true}, Clock::time_point())));
}

}  // namespace
}  // namespace slotwise::launch
