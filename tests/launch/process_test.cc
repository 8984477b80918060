// The launcher knows whether its program runs, is stopped or has ended, and reports why one does not start.
#include "server/launch/process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

namespace slotwise::launch {
namespace {

bool Becomes(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST(Process, IsStoppedGoesOnAndEnds) {
  auto process = Process::Start({"sleep", "600"}, {});
  ASSERT_TRUE(process.ok()) << process.status().message();
  EXPECT_FALSE(process->ExitCode());
  EXPECT_FALSE(process->stopped());
  for (int time = 0; time < 2; ++time) {
    kill(process->id(), SIGSTOP);
    EXPECT_TRUE(Becomes([&] { return !process->ExitCode() && process->stopped(); })) << "a stop is no end";
    process->Continue();
    EXPECT_TRUE(Becomes([&] { return !process->ExitCode() && !process->stopped(); }));
  }
  kill(process->id(), SIGSTOP);
  process->Kill();
  EXPECT_TRUE(Becomes([&] { return process->ExitCode().has_value(); }));
  EXPECT_EQ(process->ExitCode(), 128 + SIGKILL);
}

TEST(Process, ThatEndsByItselfHasItsOwnExitCode) {
  auto process = Process::Start({"sh", "-c", "exit 7"}, {});
  ASSERT_TRUE(process.ok()) << process.status().message();
  EXPECT_TRUE(Becomes([&] { return process->ExitCode().has_value(); }));
  EXPECT_EQ(process->ExitCode(), 7);
}

TEST(Process, ThatCannotStartSaysWhichBoundItMet) {
  EXPECT_EQ(Process::Start({"/nowhere/program"}, {}).status().message(),
            "cannot start /nowhere/program: No such file or directory");
  EXPECT_EQ(StartError("mpirun", EAGAIN),
            "cannot start mpirun: Resource temporarily unavailable: there are as many processes and threads "
            "as this "
            "user (ulimit -u) or this container (its pids limit) may have");
}

}  // namespace
}  // namespace slotwise::launch
