// CheckpointSchedule: when a checkpoint is due, which rank 0 asks by its own clock, and whether updates may
// go on without one, which all ranks know alike.
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
  // The next checkpoint is due by the age of the newest one, of this start or an earlier one. `options`
  // outlive it.
  void Begin(const DurabilityOptions& options, std::chrono::milliseconds age) {
    options_ = &options;
    age_ = age;
  }

  // Before every decision: the time that the ranks agree on, the last round that changed state, and whether a
  // checkpoint is under way.
  void OnDecision(std::uint64_t now_ms, std::uint64_t changed, bool under_way);
  // The round of a load has changed state, before the next decision says so.
  void NoteChange(std::uint64_t round) { changed_ = round; }

  // A cut says what state a checkpoint is of.
  struct Cut {
    std::uint64_t ms = 0;       // the time
    std::uint64_t changed = 0;  // the last round that changed state
  };
  // A checkpoint that somebody asked for, perhaps this clock, has its round now.
  void NoteRound() { asked_ = again_ = false; }
  // One is begun now, or tried: it is not tried again at once.
  Cut BeginNow();
  // One exists.
  void NotePublished(const Cut& cut) { durable_ = cut; }
  // One can be restored.
  void NoteVerified() { broken_.clear(); }
  // The newest one cannot be restored any more. Where checkpoints are made by themselves, the next one is
  // due at once, but not if the one before could not be restored either.
  void NoteLost(const std::string& checkpoint);

  // Returns whether this rank should ask for one by its clock. Once it has said so, it says no until
  // NoteRound or NoteAnswered.
  bool AsksAt(std::uint64_t now_ms);
  void NoteAnswered() { asked_ = false; }

  // Returns whether some state is in no checkpoint.
  bool something_changed() const { return changed_ != durable_.changed; }
  // Returns how often a checkpoint is made without being asked for; 0: never.
  std::chrono::milliseconds every() const;
  // OK, or why updates are refused: the disk does not keep up with `durability.interval_s`, or has lost what
  // was written.
  Status MayUpdate() const;

 private:
  static constexpr std::uint64_t kNothing = ~std::uint64_t{0};  // is durable: no round has this number

  const DurabilityOptions* options_ = nullptr;
  std::chrono::milliseconds age_{0};
  bool asked_ = false;    // a checkpoint was asked for, by the clock
  bool again_ = false;    // a checkpoint is due now: the newest one cannot be restored
  std::string broken_;    // the newest checkpoint's id, from when it could not be restored until one can
  bool decided_ = false;  // OnDecision was called
  bool saved_ = false;    // a checkpoint was begun since the start
  std::uint64_t now_ms_ = 0;
  std::int64_t cut_ms_ = 0;  // when the newest checkpoint was to be made
  std::uint64_t changed_ = 0;
  Cut durable_;  // of the newest checkpoint that exists
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CHECKPOINT_SCHEDULE_H_
