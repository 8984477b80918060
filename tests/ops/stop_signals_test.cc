#include "server/ops/stop_signals.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <ctime>
#include <future>
#include <memory>
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

// Those who send them mean other daemons, which read files again; and no such signal makes a server deaf.
TEST(StopSignals, PassOverWhatOperatorsSendFromHabit) {
  HoldStopSignals();
  sigset_t any;
  sigfillset(&any);
  while (sigtimedwait(&any, nullptr, std::array<timespec, 1>{}.data()) > 0) {  // an earlier test's
  }
  const auto before = spdlog::default_logger();
  const auto log = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(16);
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", log));
  kill(getpid(), SIGHUP);  // also before anybody listens
  std::promise<StopSignal> first;
  {
    const StopSignals signals([&](const StopSignal& signal) { first.set_value(signal); });
    for (const int signal : {SIGUSR1, SIGUSR2, SIGHUP, SIGTERM}) kill(getpid(), signal);
    auto heard = first.get_future();
    ASSERT_EQ(heard.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "it is deaf";
    EXPECT_EQ(heard.get().name, "SIGTERM");
  }
  spdlog::set_default_logger(before);
  std::string said;
  for (const std::string& line : log->last_formatted()) said += line;
  EXPECT_NE(said.find("SIGHUP from ops_test is ignored: the files of tokens and certificates are read again"),
            std::string::npos)
      << said;
  for (const char* const name : {"SIGUSR1", "SIGUSR2"})
    EXPECT_NE(said.find(std::string(name) + " from ops_test is ignored"), std::string::npos) << said;
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
