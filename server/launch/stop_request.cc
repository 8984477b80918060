#include "server/launch/stop_request.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <system_error>

namespace slotwise::launch {
namespace {

constexpr std::chrono::seconds kSameStop{1};

}  // namespace

StopRequest::StopRequest() {
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&awaited, signal);
  sigprocmask(SIG_BLOCK, &awaited, nullptr);
  signals_ = signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals_ < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
}

StopRequest::~StopRequest() { close(signals_); }

void StopRequest::Wait(int file, std::chrono::milliseconds most) {
  std::array<pollfd, 2> files{pollfd{signals_, POLLIN, 0}, pollfd{file, POLLIN, 0}};
  const auto longest = std::clamp<std::int64_t>(most.count(), 0, INT_MAX);
  if (poll(files.data(), files.size(), static_cast<int>(longest)) > 0 && files[0].revents != 0) Take();
}

void StopRequest::Take() {
  signalfd_siginfo signal{};
  while (read(signals_, &signal, sizeof(signal)) == sizeof(signal)) {
    if (signal.ssi_signo == SIGCHLD) continue;
    if (signal.ssi_signo != SIGTERM && signal.ssi_signo != SIGINT) {
      spdlog::warn("SIG{} from process {} is ignored: SIGTERM ends the server",
                   sigabbrev_np(static_cast<int>(signal.ssi_signo)), signal.ssi_pid);
      continue;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!first_) {
      first_ = static_cast<int>(signal.ssi_signo);
      since_ = now;
    } else if (now - since_ > kSameStop) {
      second_ = static_cast<int>(signal.ssi_signo);
    }
  }
}

}  // namespace slotwise::launch
