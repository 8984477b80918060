#include "server/ops/stop_signals.h"

#include <spdlog/spdlog.h>
#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <utility>

#include "server/ops/logging.h"

namespace slotwise {
namespace {

// The destructor sends this signal to end the waiting thread.
constexpr int kEndOfWait = SIGUSR2;

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kSameStop{1};

sigset_t Set(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

// Returns the process's program name, or "process 123" if the process is gone.
std::string ProgramOf(pid_t process) {
  std::string name;
  std::ifstream comm("/proc/" + std::to_string(process) + "/comm");
  if (process > 0 && std::getline(comm, name)) return name;
  return "process " + std::to_string(process);
}

// Operators send these from habit, to make daemons read their files again or open their logs again.
void LogIgnored(int signal, const std::string& sender) {
  if (signal == SIGHUP) {
    spdlog::warn(
        "SIGHUP from {} is ignored: the files of tokens and certificates are read again when they "
        "change, and the configuration when the server starts",
        sender);
  } else {
    spdlog::warn("SIG{} from {} is ignored: it means nothing to this server", sigabbrev_np(signal), sender);
  }
}

sigset_t Held() { return Set({SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}); }

}  // namespace

void HoldStopSignals() {
  const sigset_t held = Held();
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

StopSignals::StopSignals(std::function<void(const StopSignal&)> on_first)
    : on_first_(std::move(on_first)), thread_([this] { Wait(); }) {}

StopSignals::~StopSignals() {
  ends_ = true;
  pthread_kill(thread_.native_handle(), kEndOfWait);
  thread_.join();
}

void StopSignals::Wait() {
  const sigset_t awaited = Held();
  std::optional<Clock::time_point> first;
  for (;;) {
    siginfo_t sender{};
    const int signal = sigwaitinfo(&awaited, &sender);
    if (signal < 0) continue;  // interrupted, for example by a debugger
    if (signal == kEndOfWait && ends_) return;
    if (signal != SIGTERM && signal != SIGINT) {
      LogIgnored(signal, ProgramOf(sender.si_pid));
    } else if (!first) {
      first = Clock::now();
      on_first_({.name = signal == SIGTERM ? "SIGTERM" : "SIGINT", .sender = ProgramOf(sender.si_pid)});
    } else if (Clock::now() - *first > kSameStop) {
      FlushLog(std::chrono::milliseconds(100));
      std::_Exit(128 + signal);
    }
  }
}

}  // namespace slotwise
