#include "server/engine/checkpoint_schedule.h"

#include <algorithm>

namespace slotwise {

void CheckpointSchedule::OnDecision(std::uint64_t now_ms, std::uint64_t changed, bool under_way) {
  now_ms_ = now_ms;
  changed_ = changed;
  // If nothing has changed, the disk has the current state. But a server's first checkpoint is due by the age
  // of the one found at its start: otherwise a server that restarts again and again would make none.
  const bool unchanged = !under_way && !something_changed();
  if (unchanged || !decided_) durable_.ms = now_ms;
  if (!decided_) cut_ms_ = static_cast<std::int64_t>(now_ms) - age_.count();
  if (unchanged && saved_) cut_ms_ = static_cast<std::int64_t>(now_ms);
  decided_ = true;
}

CheckpointSchedule::Cut CheckpointSchedule::BeginNow() {
  cut_ms_ = static_cast<std::int64_t>(now_ms_);
  saved_ = true;
  return {now_ms_, changed_};
}

void CheckpointSchedule::NoteLost(const std::string& checkpoint) {
  // A disk that loses every checkpoint must not be written to without pause.
  again_ = broken_.empty() && (options_->mode != DurabilityMode::kNone || every().count() > 0);
  broken_ = checkpoint;
  durable_.changed = kNothing;
}

bool CheckpointSchedule::AsksAt(std::uint64_t now_ms) {
  if (asked_) return false;
  const bool due = every().count() > 0 && something_changed() &&
                   static_cast<std::int64_t>(now_ms) >= cut_ms_ + every().count();
  asked_ = due || again_;
  return asked_;
}

std::chrono::milliseconds CheckpointSchedule::every() const {
  return options_->mode == DurabilityMode::kInterval ? std::chrono::milliseconds(options_->interval) / 2
                                                     : std::chrono::milliseconds(options_->checkpoint_every);
}

Status CheckpointSchedule::MayUpdate() const {
  if (options_ == nullptr || options_->mode != DurabilityMode::kInterval) return {};
  if (!broken_.empty()) {
    return Unavailable("checkpoint " + broken_ +
                       ", the newest on disk, cannot be restored any more (rank 0's log says why): updates "
                       "go on when a new one is there")
        .Because(Reason::kJournalBehind);
  }
  const auto limit = static_cast<std::uint64_t>(std::chrono::milliseconds(options_->interval).count());
  const std::uint64_t behind = now_ms_ - std::min(now_ms_, durable_.ms);
  if (behind <= limit) return {};
  return Unavailable("the newest checkpoint on disk is of " + std::to_string(behind / 1000) +
                     " s ago, and durability.interval_s is " + std::to_string(limit / 1000) +
                     ": the disk is too slow, or full; updates go on when a newer one is there")
      .Because(Reason::kJournalBehind);
}

}  // namespace slotwise
