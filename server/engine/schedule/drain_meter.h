// DrainMeter: measures how fast a queue drains, to tell a refused caller when to try again.
//
// Each call says how much is in the queue. The meter computes how much has left: the sum of all that came,
// less the amount that is there. The rate is an exponential average, amount / time, in which an event t ago
// has weight e^(-t / kMemory); time in which the queue was empty does not count. The hint is
//
//     there / 2 / rate, within kLeast and kMost:
//
// the time until half of the queue has drained. Clients come back after one to one and a half times the hint
// (client/cpp/backoff.h), so they find room before the queue is empty and the server idle. While nothing has
// left yet, the rate is unknown, and the hint is the time so far, but at least kUnknown.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_DRAIN_METER_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_DRAIN_METER_H_

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "server/engine/clock.h"

namespace slotwise {

class DrainMeter {
 public:
  static constexpr std::chrono::milliseconds kLeast{1};
  static constexpr std::chrono::milliseconds kMost{5000};

  // `amount` has come while `there` was in the queue, in bytes or another unit.
  void Came(Clock::TimePoint now, std::uint64_t there, std::uint64_t amount) {
    Look(now, there);
    came_ += amount;
  }

  // Returns after what time to ask for room again, while `there` is in the queue.
  std::chrono::milliseconds RetryAfter(Clock::TimePoint now, std::uint64_t there) {
    Look(now, there);
    const double seconds =
        amount_ > 0 ? static_cast<double>(there) / 2 * time_ / amount_ : std::max(kUnknown, time_);
    const double most = std::chrono::duration<double>(kMost).count();
    return std::max(kLeast, std::chrono::round<std::chrono::milliseconds>(
                                std::chrono::duration<double>(std::min(seconds, most))));
  }

 private:
  static constexpr double kMemory = 1.0;     // seconds
  static constexpr double kInterval = 0.01;  // between two looks that count, in seconds
  static constexpr double kUnknown = 0.05;   // seconds

  void Look(Clock::TimePoint now, std::uint64_t there) {
    const std::uint64_t left = came_ - std::min(there, came_);
    const double passed = std::chrono::duration<double>(now - at_).count();
    if (there > 0 && passed < kInterval) return;
    if (there > 0) {
      const double kept = std::exp(-passed / kMemory);
      amount_ = amount_ * kept + static_cast<double>(left - std::min(left, left_));
      time_ = time_ * kept + passed;
    }
    at_ = now;
    left_ = left;
  }

  std::uint64_t came_ = 0;
  // The time of the last look, and the amount that had left by then.
  Clock::TimePoint at_{};
  std::uint64_t left_ = 0;
  // The sums of the average.
  double amount_ = 0;
  double time_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_DRAIN_METER_H_
