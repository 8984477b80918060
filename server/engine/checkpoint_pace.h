// CheckpointPace: limits how many bytes of a checkpoint's rows an engine reads at a time, so that a
// checkpoint hardly slows training down.
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_CHECKPOINT_PACE_H_
#define SLOTWISE_SERVER_ENGINE_CHECKPOINT_PACE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace slotwise {

class CheckpointPace {
 public:
  // `on_processor`: the CPU reads the rows, and not a GPU beside its other work.
  explicit CheckpointPace(bool on_processor) : on_processor_(on_processor) {}

  // Called in every turn of the engine, with this rank's clock. `idle`: only checkpoints had work.
  void NoteTurn(std::uint64_t now_ms, bool idle) {
    passed_ms_ = now_ms - std::exchange(turn_ms_, now_ms);
    if (!std::exchange(in_own_round_, false) && !idle) busy_ms_ = now_ms;
    at_rest_ = !busy_ms_ || now_ms - *busy_ms_ >= kRestAfterMs;
  }
  // Notes that the engine has run a checkpoint's round since the last turn.
  void NoteOwnRound() { in_own_round_ = true; }

  // Returns how many bytes may be read in this turn; 0: none yet. `bytes` is the size of this rank's rows in
  // the checkpoint; `every` is the period of checkpoints, 0 for none.
  std::size_t MayRead(std::size_t bytes, std::chrono::milliseconds every) {
    const auto a_millisecond = static_cast<std::int64_t>(BytesAMillisecond(bytes, every));
    may_read_ = !on_processor_ ? kMost
                : at_rest_
                    ? kAtRest
                    : std::min(kMost, may_read_ + static_cast<std::int64_t>(passed_ms_) * a_millisecond);
    // Beginning a read and waking the thread that writes costs as much as a few hundred rows.
    pauses_ = on_processor_ && !at_rest_ && may_read_ < std::min(kMost, kTickMs * a_millisecond);
    return pauses_ ? 0 : static_cast<std::size_t>(may_read_);
  }
  void NoteRead(std::size_t bytes) {
    may_read_ = at_rest_ ? 0 : may_read_ - static_cast<std::int64_t>(bytes);
  }

  bool on_processor() const { return on_processor_; }
  bool at_rest() const { return at_rest_; }
  bool pauses() const { return pauses_; }

 private:
  static constexpr std::uint64_t kRestAfterMs = 25;
  static constexpr std::int64_t kTickMs = 8;
  // Bounds a read. A GPU reads beside its work.
  static constexpr std::int64_t kMost = std::int64_t{16} << 20;
  // Bounds a read of an engine at rest, and so the time that a request may have to wait for the read.
  static constexpr std::int64_t kAtRest = std::int64_t{1} << 20;

  // A busy CPU reads 48 MiB of a checkpoint a second, which its worker then writes, verifies and syncs: less
  // than a tenth of two cores' time. The rate is higher if the next checkpoint is due before this one exists.
  static std::size_t BytesAMillisecond(std::size_t bytes, std::chrono::milliseconds every) {
    constexpr std::size_t kGentle = std::size_t{48} << 10;
    if (every.count() == 0) return kGentle;
    return std::max(kGentle, 2 * bytes / static_cast<std::size_t>(every.count()));
  }

  const bool on_processor_;
  std::uint64_t turn_ms_ = 0;             // when the last turn was
  std::uint64_t passed_ms_ = 0;           // between the last two turns
  std::optional<std::uint64_t> busy_ms_;  // when the engine last served others
  bool in_own_round_ = false;
  bool at_rest_ = true;
  bool pauses_ = false;
  std::int64_t may_read_ = 0;  // bytes that a busy engine may read; below 0 after a read that was too large
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CHECKPOINT_PACE_H_
