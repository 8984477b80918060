#include "server/launch/rank_watch.h"

#include "server/launch/leftovers.h"

namespace slotwise::launch {

void RankWatch::Learn() {
  ranks_ = FindRanks(id_);
  has_known_ = has_known_ || !ranks_.empty();
}

RankWatch::Help RankWatch::Look(bool mpirun_is_stopped, Clock::time_point now) {
  if (mpirun_is_stopped) Learn();
  std::erase_if(ranks_, [this](pid_t rank) { return !IsRank(rank, id_); });
  if (!ranks_.empty()) {
    gone_since_.reset();
    return Help::kNone;
  }
  if (has_known_ && !gone_since_) gone_since_ = now;
  if (gone_since_ && now - *gone_since_ >= patience_) return Help::kKill;
  return mpirun_is_stopped ? Help::kContinue : Help::kNone;
}

}  // namespace slotwise::launch
