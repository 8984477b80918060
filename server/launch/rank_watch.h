// RankWatch knows the ranks of a run on this host, and says what to do about an mpirun that does not end
// though they have.
//
// mpirun ends once its ranks have. It does not while it is stopped (SIGSTOP), or while it waits for a daemon
// of its own, on another host, that is stopped or cut off. Ranks need no such help: they hear each other's
// heartbeat, so where one is dead or stopped all end.
// Thread-safety: one thread.
#ifndef SLOTWISE_SERVER_LAUNCH_RANK_WATCH_H_
#define SLOTWISE_SERVER_LAUNCH_RANK_WATCH_H_

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace slotwise::launch {

class RankWatch {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Help {
    kNone,
    kContinue,  // mpirun is stopped, and no rank runs here any more, or yet
    kKill       // the ranks that ran here have ended, and mpirun has not within `patience`
  };

  RankWatch(std::string id, Clock::duration patience) : id_(std::move(id)), patience_(patience) {}

  // Learns which ranks run here now.
  void Learn();
  // Says what to do now. Call it every second or so.
  Help Look(bool mpirun_is_stopped, Clock::time_point now);

 private:
  const std::string id_;
  const Clock::duration patience_;
  std::vector<pid_t> ranks_;  // those that run
  bool has_known_ = false;
  std::optional<Clock::time_point> gone_since_;
};

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_RANK_WATCH_H_
