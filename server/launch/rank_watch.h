// RankWatch knows whether ranks of a run are there, and says what to do about an mpirun that does not end
// though they have, or that starts none.
//
// mpirun ends once its ranks have. It does not while it is stopped (SIGSTOP), or while it waits for a daemon
// of its own, on another host, that is stopped or cut off, and sometimes not where ranks die as they start.
// Ranks need no such help: they hear each other's heartbeat, so where one is dead or stopped all end.
//
// Ranks on this host are seen as processes. Where none ever was, all may be on other hosts: of those it is
// seen that rank 0 holds the data folder, which it takes before it starts its device.
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
  struct Limits {
    Clock::duration patience;       // without a rank, once there was one, or after a stop
    Clock::duration to_first_rank;  // from the first look on
  };
  struct Run {
    bool mpirun_is_stopped = false;
    bool serves = false;
    bool is_told_to_end = false;
  };
  enum class Help {
    kNone,
    kContinue,  // mpirun is stopped, and no rank runs here any more, or yet
    kKill       // no rank has been there for as long as the limits say
  };

  // `folder`: the data folder.
  RankWatch(std::string id, std::string folder, const Limits& limits)
      : id_(std::move(id)), folder_(std::move(folder)), limits_(limits) {}

  // Learns which ranks run here now.
  void Learn();
  // Says what to do now. Call it every second or so, and more often until has_seen_rank.
  Help Look(const Run& run, Clock::time_point now);
  // Returns whether a rank was there, so that kKill is about what is left of it.
  bool has_seen_rank() const { return has_known_ || has_seen_folder_held_; }

 private:
  bool IsRankThere(bool may_look_far);

  const std::string id_;
  const std::string folder_;
  const Limits limits_;
  std::vector<pid_t> ranks_;  // those that run here
  bool has_known_ = false;
  bool has_seen_folder_held_ = false;
  bool is_told_to_end_ = false;
  std::optional<Clock::time_point> gone_since_;
};

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_RANK_WATCH_H_
