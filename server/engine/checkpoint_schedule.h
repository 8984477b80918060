// CheckpointSchedule: says when a checkpoint is due, by rank 0's clock, and whether updates may go on without
// one, alike on all ranks.
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_CHECKPOINT_SCHEDULE_H_
#define SLOTWISE_SERVER_ENGINE_CHECKPOINT_SCHEDULE_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "server/engine/durability_options.h"
#include "slotwise/status.h"

namespace slotwise {

class CheckpointSchedule {
 public:
  // `age`, the newest checkpoint's, decides when the next one is due. `options` outlive the schedule.
  void Begin(const DurabilityOptions& options, std::chrono::milliseconds age) {
    options_ = &options;
    age_ = age;
  }

  // Called before every decision, with the agreed time, the last round that changed state, and whether a
  // checkpoint is under way.
  void OnDecision(std::uint64_t now_ms, std::uint64_t changed, bool under_way);
  // Notes before the next decision that a load has changed state in this round.
  void NoteChange(std::uint64_t round) { changed_ = round; }

  // A cut says which state a checkpoint has.
  struct Cut {
    std::uint64_t ms = 0;       // the time
    std::uint64_t changed = 0;  // the last round that changed state
  };
  // A requested checkpoint has its round now; the request may have come from this schedule.
  void NoteRound() { asked_ = again_ = false; }
  // A checkpoint begins now. If the attempt fails, it is not repeated at once.
  Cut BeginNow();
  // The checkpoint exists.
  void NotePublished(const Cut& cut) { durable_ = cut; }
  // The newest checkpoint can be restored.
  void NoteVerified() { broken_.clear(); }
  // The newest checkpoint cannot be restored any more. If checkpoints are periodic, the next one is due at
  // once, unless the one before could not be restored either.
  void NoteLost(const std::string& checkpoint);

  // Returns whether this rank should ask for a checkpoint; after true, false until NoteRound or NoteAnswered.
  bool AsksAt(std::uint64_t now_ms);
  void NoteAnswered() { asked_ = false; }

  // Returns whether some state is in no checkpoint.
  bool something_changed() const { return changed_ != durable_.changed; }
  // Returns the period of periodic checkpoints; 0: there are none.
  std::chrono::milliseconds every() const;
  // Returns OK, or why updates are refused: the disk does not keep up with `durability.interval_s`, or has
  // lost written data.
  Status MayUpdate() const;

 private:
  static constexpr std::uint64_t kNothing = ~std::uint64_t{0};  // nothing is durable: not a round

  const DurabilityOptions* options_ = nullptr;
  std::chrono::milliseconds age_{0};
  bool asked_ = false;    // AsksAt has asked for a checkpoint
  bool again_ = false;    // a checkpoint is due now: the newest one cannot be restored
  std::string broken_;    // id of a checkpoint that could not be restored, until a later one can
  bool decided_ = false;  // OnDecision was called
  bool saved_ = false;    // a checkpoint was begun since the start
  std::uint64_t now_ms_ = 0;
  std::int64_t cut_ms_ = 0;  // the agreed time of the newest checkpoint's cut
  std::uint64_t changed_ = 0;
  Cut durable_;  // of the newest checkpoint that exists
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CHECKPOINT_SCHEDULE_H_
