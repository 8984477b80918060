// FrameAllowance limits how many frames without messages connections may send, each and all together. A frame
// that carries little or nothing (a PING, SETTINGS, an empty DATA frame) costs gRPC about a microsecond, and
// a call that is begun and reset costs tens of them, but they cost a client next to nothing. Callers pass the
// time, so tests need no clock.
#ifndef SLOTWISE_SERVER_RPC_FRAME_ALLOWANCE_H_
#define SLOTWISE_SERVER_RPC_FRAME_ALLOWANCE_H_

#include <algorithm>
#include <chrono>
#include <mutex>

namespace slotwise {

// A token bucket of frames: it fills by so many a second, up to a limit.
// Thread-safety: one thread at a time.
class FrameBucket {
 public:
  using Clock = std::chrono::steady_clock;

  FrameBucket(double a_second, double most, double first, Clock::time_point now)
      : a_second_(a_second), most_(most), frames_(first), now_(now) {}

  // Takes `frames`, or as many as there are. Returns the number of missing ones.
  double Take(double frames, Clock::time_point now) {
    if (now > now_) {
      Add(a_second_ * std::chrono::duration<double>(now - now_).count());
      now_ = now;
    }
    const double taken = std::min(frames, frames_);
    frames_ -= taken;
    return frames - taken;
  }

  void Add(double frames) { frames_ = std::min(most_, frames_ + frames); }

 private:
  const double a_second_;
  const double most_;
  double frames_;
  Clock::time_point now_;
};

// The bucket that all connections of a process share. A connection within its quiet allowance
// (frame_meter.cc) takes nothing here, so other connections' attacks cannot end it.
// Thread-safety: safe from any thread.
class SharedFrames {
 public:
  using Clock = FrameBucket::Clock;
  static constexpr double kASecond = 65'536;

  explicit SharedFrames(Clock::time_point now) : bucket_(kASecond, 2 * kASecond, 2 * kASecond, now) {}

  // Takes `frames`, or as many as there are. Returns whether there were enough.
  bool Take(double frames, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    return bucket_.Take(frames, now) <= 0;
  }

 private:
  std::mutex mutex_;
  FrameBucket bucket_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_FRAME_ALLOWANCE_H_
