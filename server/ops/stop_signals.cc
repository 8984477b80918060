#include "server/ops/stop_signals.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <utility>

namespace slotwise {
namespace {

// Ends the waiting thread; nobody else sends it.
constexpr int kEndOfWait = SIGUSR2;

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kSameStop{1};

sigset_t Set(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

}  // namespace

void HoldStopSignals() {
  const sigset_t held = Set({SIGTERM, SIGINT, kEndOfWait});
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

StopSignals::StopSignals(std::function<void(std::string_view)> on_first)
    : on_first_(std::move(on_first)), thread_([this] { Wait(); }) {}

StopSignals::~StopSignals() {
  pthread_kill(thread_.native_handle(), kEndOfWait);
  thread_.join();
}

void StopSignals::Wait() {
  const sigset_t awaited = Set({SIGTERM, SIGINT, kEndOfWait});
  std::optional<Clock::time_point> first;
  for (;;) {
    int signal = 0;
    if (sigwait(&awaited, &signal) != 0 || signal == kEndOfWait) return;
    if (!first) {
      first = Clock::now();
      on_first_(signal == SIGTERM ? "SIGTERM" : "SIGINT");
    } else if (Clock::now() - *first > kSameStop) {
      std::_Exit(128 + signal);
    }
  }
}

}  // namespace slotwise
