// Decides whether and when a server that has ended is started again.
//
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_LAUNCH_RESTARTS_H_
#define SLOTWISE_SERVER_LAUNCH_RESTARTS_H_

#include <chrono>
#include <deque>
#include <string>
#include <variant>

namespace slotwise::launch {

using Clock = std::chrono::steady_clock;

struct RestartLimits {
  int most = 10;  // restarts within `within`
  std::chrono::milliseconds within{600'000};
  std::chrono::milliseconds first_backoff{1'000};
  // Waits double up to this one. After a run that has served this long, the next wait is the first one again.
  std::chrono::milliseconds longest_backoff{60'000};
};

// The end of one run of the server that was not told to end.
struct RunEnd {
  int exit_code = 0;    // 128 + the signal if it was killed
  bool served = false;  // it has been serving
  Clock::duration served_for{0};
};

struct Restart {
  std::chrono::milliseconds wait{0};
  int number = 0;  // among the restarts within RestartLimits::within
};
struct GiveUp {
  std::string why;
};

class Restarts {
 public:
  explicit Restarts(const RestartLimits& limits) : limits_(limits) {}

  // Gives up if the limit is reached. Also gives up if the server has never served and was not killed: it
  // refuses its configuration, its data or this machine, and would do so again.
  std::variant<Restart, GiveUp> After(const RunEnd& end, Clock::time_point now);

 private:
  const RestartLimits limits_;
  std::deque<Clock::time_point> past_;  // restarts within RestartLimits::within
  int doublings_ = 0;
  bool has_served_ = false;
};

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_RESTARTS_H_
