#include "server/ops/stop_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <string>

namespace slotwise {
namespace {

TEST(StopSignals, CallOnceForSignalsThatComeTogetherAndEndWithoutOne) {
  HoldStopSignals();
  {
    const StopSignals unused([](const StopSignal&) { FAIL(); });
  }

  kill(getpid(), SIGTERM);  // comes before anybody listens
  std::promise<StopSignal> first;
  int calls = 0;
  {
    const StopSignals signals([&](const StopSignal& signal) {
      ++calls;
      first.set_value(signal);
    });
    const StopSignal signal = first.get_future().get();
    EXPECT_EQ(signal.name, "SIGTERM");
    EXPECT_EQ(signal.sender, "ops_test");
    // `timeout` and mpirun repeat their signals, which must not end the process at once.
    kill(getpid(), SIGINT);
  }
  EXPECT_EQ(calls, 1);
}

TEST(StopSignals, EndTheProcessIfAskedAgainLater) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        HoldStopSignals();
        const StopSignals signals([](const StopSignal&) {});
        for (;;) {  // until a signal ends the process
          kill(getpid(), SIGTERM);
          usleep(10'000);
        }
      },
      testing::ExitedWithCode(128 + SIGTERM), "");
}

}  // namespace
}  // namespace slotwise
