// DrainMeter: how fast what waits somewhere goes away, and so when somebody who found no room may ask again.
//
// A caller that adds something says how much was there before. What came less what is there has left, so
// the meter need not be told of that. The rate is an exponential average, amount / time, in which what
// happened t ago counts for e^(-t / kMemory); time in which nothing was there does not count. The hint is
//
//     there / 2 / rate, within kLeast and kMost:
//
// the time until half of what is there has gone. Clients come back after one to one and a half times that
// (client/cpp/backoff.h), so they find room before all has gone and the server stands idle. While nothing has
// gone yet, the rate is unknown, and the hint is as long as that has lasted, and at least kUnknown.
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

  // So much has come, when so much was there, in bytes or in whatever else is counted.
  void Came(Clock::TimePoint now, std::uint64_t there, std::uint64_t amount) {
    Look(now, there);
    came_ += amount;
  }

  // Returns when to ask again for room beside what is there.
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
  // At the last look: when it was, and what had left by then.
  Clock::TimePoint at_{};
  std::uint64_t left_ = 0;
  // The sums of the average.
  double amount_ = 0;
  double time_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_DRAIN_METER_H_
