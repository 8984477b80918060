// Decides whether a server that has ended is started again, and when.
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
  // Waits double up to this one. A server that has served for so long counts as good: the next wait is the
  // first again.
  std::chrono::milliseconds longest_backoff{60'000};
};

// How one run of the server ended, without having been told to.
struct RunEnd {
  int exit_code = 0;    // 128 + the signal if it was killed
  bool served = false;  // it came so far
  Clock::duration served_for{0};
};

struct Restart {
  std::chrono::milliseconds wait{0};
  int number = 0;  // among those within the limit's time
};
struct GiveUp {
  std::string why;
};

class Restarts {
 public:
  explicit Restarts(const RestartLimits& limits) : limits_(limits) {}

  // Gives up if the limit is reached, or if the server has never served and has not been killed: it refuses
  // its configuration, its data or this machine, and would again.
  std::variant<Restart, GiveUp> After(const RunEnd& end, Clock::time_point now);

 private:
  const RestartLimits limits_;
  std::deque<Clock::time_point> past_;  // restarts within the limit's time
  int doublings_ = 0;
  bool has_served_ = false;
};

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_RESTARTS_H_
