// RareLog lets through so many log lines of one kind in an interval, and counts the others. What clients can
// provoke at will must not fill a disk.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_INTAKE_RARE_LOG_H_
#define SLOTWISE_SERVER_INTAKE_RARE_LOG_H_

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace slotwise {

class RareLog {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RareLog(Clock::duration interval, std::uint32_t lines = 1) : interval_(interval), lines_(lines) {}

  // Returns how many lines were held back since one was let through, if this one is let through.
  std::optional<std::uint64_t> Pass(Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    if (!begin_ || now - *begin_ >= interval_) {
      begin_ = now;
      passed_ = 0;
    }
    if (passed_ == lines_) {
      ++held_back_;
      return std::nullopt;
    }
    ++passed_;
    return std::exchange(held_back_, 0);
  }

  // Returns how many lines were held back in an interval that is over, once: no later line counts them.
  std::uint64_t TakeHeldBack(Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    return begin_ && now - *begin_ >= interval_ ? std::exchange(held_back_, 0) : 0;
  }

 private:
  const Clock::duration interval_;
  const std::uint32_t lines_;
  std::mutex mutex_;
  std::optional<Clock::time_point> begin_;  // of the interval
  std::uint32_t passed_ = 0;                // in the interval
  std::uint64_t held_back_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_RARE_LOG_H_
