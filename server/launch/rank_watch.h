// RankWatch knows whether a run has ranks, and decides what to do about an mpirun that does not end after its
// ranks have ended, or that starts none.
//
// mpirun normally ends once its ranks have. It does not while it is stopped (SIGSTOP), or while it waits for
// one of its daemons on another host that is stopped or cut off, and sometimes not if ranks die while they
// start. Ranks need no such help: they watch each other's heartbeat, so if one is dead or stopped, all end.
//
// Ranks on this host are seen as processes. If there never was one, all may be on other hosts. They are seen
// by the data folder, which rank 0 locks before it starts its device.
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
    Clock::duration patience;       // without a rank, after the last one or after a stop
    Clock::duration to_first_rank;  // from the first Look on
  };
  struct Run {
    bool mpirun_is_stopped = false;
    bool serves = false;
    bool is_told_to_end = false;
  };
  enum class Help {
    kNone,
    kContinue,  // mpirun is stopped, and no rank runs here now
    kKill       // there was no rank for as long as the limits say
  };

  // `folder` is the data folder.
  RankWatch(std::string id, std::string folder, const Limits& limits)
      : id_(std::move(id)), folder_(std::move(folder)), limits_(limits) {}

  // Finds the ranks that run here now.
  void Learn();
  // Returns what to do now. Called every second or so, and more often until has_seen_rank.
  Help Look(const Run& run, Clock::time_point now);
  // Returns whether there was a rank. Then kKill is about what is left of the run.
  bool has_seen_rank() const { return has_known_ || has_seen_folder_held_; }

 private:
  bool IsRankThere(bool may_look_far);

  const std::string id_;
  const std::string folder_;
  const Limits limits_;
  std::vector<pid_t> ranks_;  // the ranks that run here
  bool has_known_ = false;
  bool has_seen_folder_held_ = false;
  bool is_told_to_end_ = false;
  std::optional<Clock::time_point> gone_since_;
};

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_RANK_WATCH_H_
