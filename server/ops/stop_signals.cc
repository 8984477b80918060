#include "server/ops/stop_signals.h"

#include <csignal>
#include <cstdlib>
#include <utility>

namespace slotwise {
namespace {

// Ends the waiting thread; nobody else sends it.
constexpr int kEndOfWait = SIGUSR2;

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
  for (bool first = true;; first = false) {
    int signal = 0;
    if (sigwait(&awaited, &signal) != 0 || signal == kEndOfWait) return;
    if (!first) std::_Exit(128 + signal);
    on_first_(signal == SIGTERM ? "SIGTERM" : "SIGINT");
  }
}

}  // namespace slotwise
