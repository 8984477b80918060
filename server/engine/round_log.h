// RoundLog: writes rounds that changed state to the journal, and holds back answers that promise durability
// until every rank has their rounds on disk.
//
// Without a journal the log is off: nothing is written, and no answer waits.
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_ROUND_LOG_H_
#define SLOTWISE_SERVER_ENGINE_ROUND_LOG_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "server/durability/journal.h"
#include "server/engine/room_reports.h"
#include "slotwise/status.h"

namespace slotwise {

class RoundLog {
 public:
  // From now on rounds go into `journal`, which outlives the log. `last` is the last round that is in it.
  void Use(Journal& journal, std::uint64_t last) {
    journal_ = &journal;
    last_ = last;
    durable_everywhere_ = last;
  }
  bool on() const { return journal_ != nullptr; }

  // Reserves space for a record of so many bytes. RESOURCE_EXHAUSTED: the disk is full. REQUIRES: on(), as
  // Append does.
  Status Reserve(std::uint64_t bytes) {
    Status room = journal_->Reserve(bytes);
    if (room.ok()) {
      if (reports_.none()) reports_.OnRoom(std::chrono::steady_clock::now());
    } else if (journal_->blocked()) {
      reports_.OnNone(room, bytes, std::chrono::steady_clock::now());
    }
    return room;
  }

  // Appends a record of a round that changed state; every rank does so, in the order of the rounds. REQUIRES:
  // the last Reserve was for this record.
  void Append(std::uint64_t round, std::uint32_t kind, std::vector<JournalPiece> pieces) {
    last_ = round;
    journal_->Append(round, kind, std::move(pieces));
  }

  // Returns the last recorded round that is on this rank's disk.
  std::uint64_t durable() const { return on() ? journal_->durable() : 0; }
  // Notes that a round changed state, whether the round is recorded or not.
  void NoteChange(std::uint64_t round) { changed_ = round; }
  std::uint64_t changed() const { return changed_; }
  // Returns the last round that was recorded.
  std::uint64_t last() const { return last_; }

  // Calls `answer` once all rounds that were recorded until now are on every rank's disk: at once, if they
  // are, or if the log is off.
  void Answer(std::function<void()> answer) {
    if (!on() || (held_.empty() && last_ <= durable_everywhere_)) return answer();
    held_.emplace_back(last_, std::move(answer));
  }
  // Returns whether every rank is known to have all recorded rounds on disk. The same on every rank.
  bool all_is_durable() const { return !on() || durable_everywhere_ >= last_; }

  // All ranks have the rounds up to `round` on disk.
  void OnDurableEverywhere(std::uint64_t round) {
    if (round > durable_everywhere_) journal_->NoteComplete(round);
    durable_everywhere_ = round;
    while (!held_.empty() && held_.front().first <= round) {
      const auto answer = std::move(held_.front().second);
      held_.pop_front();
      answer();
    }
  }

 private:
  Journal* journal_ = nullptr;
  RoomReports reports_;
  std::uint64_t last_ = 0;
  std::uint64_t changed_ = 0;
  std::uint64_t durable_everywhere_ = 0;
  std::deque<std::pair<std::uint64_t, std::function<void()>>> held_;  // by round
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_ROUND_LOG_H_
