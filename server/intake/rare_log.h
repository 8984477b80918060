// RareLog lets through a bounded number of log lines of one kind in an interval, and counts the others, so
// that clients cannot fill a disk with lines that they provoke.
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

  // If this line is let through, returns how many lines were held back since the last one; otherwise nothing.
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

  // Returns how many lines were held back if the interval is over, and resets that number.
  std::uint64_t TakeHeldBack(Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    return begin_ && now - *begin_ >= interval_ ? std::exchange(held_back_, 0) : 0;
  }

 private:
  const Clock::duration interval_;
  const std::uint32_t lines_;
  std::mutex mutex_;
  std::optional<Clock::time_point> begin_;  // start of the interval
  std::uint32_t passed_ = 0;                // in the interval
  std::uint64_t held_back_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_RARE_LOG_H_
