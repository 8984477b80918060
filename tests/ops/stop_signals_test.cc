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
    const StopSignals unused([](std::string_view) { FAIL(); });
  }

  kill(getpid(), SIGTERM);  // before anybody listens
  std::promise<std::string> first;
  int calls = 0;
  {
    const StopSignals signals([&](std::string_view name) {
      ++calls;
      first.set_value(std::string(name));
    });
    EXPECT_EQ(first.get_future().get(), "SIGTERM");
    kill(getpid(), SIGINT);  // `timeout` and mpirun repeat themselves: not yet a wish to end at once
  }
  EXPECT_EQ(calls, 1);
}

TEST(StopSignals, EndTheProcessIfAskedAgainLater) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        HoldStopSignals();
        const StopSignals signals([](std::string_view) {});
        for (;;) {  // until it works
          kill(getpid(), SIGTERM);
          usleep(10'000);
        }
      },
      testing::ExitedWithCode(128 + SIGTERM), "");
}

}  // namespace
}  // namespace slotwise
