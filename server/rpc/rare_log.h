// RareLog lets through a log line of one kind at most so often, and counts those between. What clients can
// provoke at will must not fill a disk.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_RPC_RARE_LOG_H_
#define SLOTWISE_SERVER_RPC_RARE_LOG_H_

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

namespace slotwise {

class RareLog {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RareLog(Clock::duration interval) : interval_(interval) {}

  // Returns how many times the line was held back since it was let through, if it is let through now.
  std::optional<std::uint64_t> Pass(Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    if (last_ && now - *last_ < interval_) {
      ++held_back_;
      return std::nullopt;
    }
    last_ = now;
    const std::uint64_t held_back = held_back_;
    held_back_ = 0;
    return held_back;
  }

 private:
  const Clock::duration interval_;
  std::mutex mutex_;
  std::optional<Clock::time_point> last_;
  std::uint64_t held_back_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_RARE_LOG_H_
