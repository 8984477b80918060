#include "server/launch/rank_watch.h"

#include "server/durability/folder_lock.h"
#include "server/launch/leftovers.h"

namespace slotwise::launch {

void RankWatch::Learn() {
  ranks_ = FindRanks(id_);
  has_known_ = has_known_ || !ranks_.empty();
}

bool RankWatch::IsRankThere(bool may_look_far) {
  if (!ranks_.empty()) return true;
  if (has_known_ || !may_look_far) return false;
  const bool is_held = FolderLock::IsHeld(folder_, "server.lock");
  has_seen_folder_held_ = has_seen_folder_held_ || is_held;
  return is_held;
}

RankWatch::Help RankWatch::Look(const Run& run, Clock::time_point now) {
  // Looks for ranks on other hosts only while the server starts or ends: if NFS loses the folder's lock,
  // ranks that serve go on.
  const bool starts_or_ends = !run.serves || run.is_told_to_end;
  std::erase_if(ranks_, [this](pid_t rank) { return !IsRank(rank, id_); });
  if (ranks_.empty() && (run.mpirun_is_stopped || starts_or_ends)) Learn();
  const bool is_there = IsRankThere(starts_or_ends);
  // The end of ranks that serve and were never seen could not be seen.
  const bool would_be_seen = has_known_ || !run.serves || (run.is_told_to_end && has_seen_folder_held_);
  if (is_there || !would_be_seen) {
    gone_since_.reset();
  } else {
    const bool is_stop = run.is_told_to_end && !is_told_to_end_;
    if (!gone_since_ || (is_stop && !has_seen_rank())) gone_since_ = now;
    const bool is_patient = !has_seen_rank() && !run.is_told_to_end;
    if (now - *gone_since_ >= (is_patient ? limits_.to_first_rank : limits_.patience)) return Help::kKill;
  }
  is_told_to_end_ = run.is_told_to_end;
  return run.mpirun_is_stopped && ranks_.empty() ? Help::kContinue : Help::kNone;
}

}  // namespace slotwise::launch
