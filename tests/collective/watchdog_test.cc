// The watchdog reports operations that do not end, and nothing else.
#include "server/collective/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>

namespace slotwise {
namespace {

using std::chrono::milliseconds;

// No test on any machine waits for kNever, and every test can wait for kSoon.
constexpr milliseconds kNever{3'600'000};
constexpr milliseconds kSoon{30};

class AWatchdog : public testing::Test {
 protected:
  void Start(milliseconds limit) {
    watchdog_.Start(limit, [this](const std::string& why) { report_.set_value(why); });
  }
  std::string Report() { return report_.get_future().get(); }

  std::promise<std::string> report_;
  Watchdog watchdog_;
};

TEST_F(AWatchdog, ReportsACallThatDoesNotEnd) {
  Start(kSoon);
  const Watchdog::Scope scope(watchdog_, "AllGather", 123);
  const std::string report = Report();
  EXPECT_EQ(report.find("AllGather of 123 bytes has not ended after 0."), 0U) << report;
}

TEST_F(AWatchdog, AddsUpHowLongItsScopesLasted) {
  EXPECT_EQ(watchdog_.waited().count(), 0);
  const auto begin = std::chrono::steady_clock::now();
  {
    const Watchdog::Scope outer(watchdog_, "AllGather", 1);
    { const Watchdog::Scope inner(watchdog_, "AllReduceSum", 1); }
    EXPECT_EQ(watchdog_.waited().count(), 0) << "it is not over";
  }
  const auto first = watchdog_.waited();
  EXPECT_GT(first.count(), 0);
  { const Watchdog::Scope next(watchdog_, "Wake", 1); }
  EXPECT_GT(watchdog_.waited(), first);
  EXPECT_LE(watchdog_.waited(), std::chrono::steady_clock::now() - begin);
}

TEST_F(AWatchdog, CountsEachScopesTimeWhereItIsTold) {
  DurationCounter outer_time;
  DurationCounter inner_time;
  {
    const Watchdog::Scope outer(watchdog_, "AllGather", 1, &outer_time);
    for (int i = 0; i < 2; ++i) const Watchdog::Scope inner(watchdog_, "AllReduceSum", 1, &inner_time);
    EXPECT_EQ(outer_time.Read().count(), 0U) << "it is not over";
    EXPECT_EQ(inner_time.Read().count(), 2U);
  }
  EXPECT_EQ(outer_time.Read().count(), 1U);
  EXPECT_GE(outer_time.Read().sum_ns, inner_time.Read().sum_ns);
  EXPECT_EQ(outer_time.Read().sum_ns, static_cast<std::uint64_t>(watchdog_.waited().count()));
}

TEST_F(AWatchdog, ForgetsCallsThatEnded) {
  Start(kNever);
  { const Watchdog::Scope ended(watchdog_, "AllGather", 1); }
  const Watchdog::Scope scope(watchdog_, "AllReduceSum", 8);
  Start(kSoon);  // a second Start changes the limit
  EXPECT_EQ(Report().find("AllReduceSum of 8 bytes"), 0U);
}

TEST_F(AWatchdog, ReportsAnOperationBehindItsCallThatDoesNotEnd) {
  Start(kSoon);
  watchdog_.Add("ReduceScatter", 40, [] { return true; });
  watchdog_.Add("AllToAll", 80, [] { return false; });
  EXPECT_EQ(Report().find("AllToAll of 80 bytes has not ended after 0."), 0U);
}

TEST_F(AWatchdog, ReportsAtOnceWhatHasFailed) {
  Start(kNever);
  watchdog_.Add("AllToAll", 80, []() -> bool { throw std::runtime_error("link down"); });
  Start(kSoon);
  EXPECT_EQ(Report(), "AllToAll of 80 bytes has failed: link down");
}

TEST_F(AWatchdog, LetsGoOfWhatEndedOperationsHold) {
  Start(kNever);
  const auto held = std::make_shared<int>(0);
  watchdog_.Add("AllToAll", 80, [held] { return true; });
  watchdog_.ForgetEnded();
  EXPECT_EQ(held.use_count(), 1);
}

TEST_F(AWatchdog, LetsGoOfWhatEndedBeforeOlderOperations) {
  Start(kNever);
  const auto held = std::make_shared<int>(0);
  watchdog_.Add("ReduceScatter", 40, [] { return false; });
  watchdog_.Add("AllGatherBlocks", 80, [held] { return true; });
  watchdog_.ForgetEnded();
  EXPECT_EQ(held.use_count(), 1);
}

TEST_F(AWatchdog, HoldsNothingBeforeItsStart) {
  const auto held = std::make_shared<int>(0);
  watchdog_.Add("AllToAll", 80, [held] { return false; });
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace slotwise
