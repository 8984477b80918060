// SetClock: a clock whose seconds since 1970 a test sets; its other time is the system's.
// Thread-safety: any thread.
#ifndef SLOTWISE_TESTS_ENGINE_SET_CLOCK_H_
#define SLOTWISE_TESTS_ENGINE_SET_CLOCK_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "server/engine/clock.h"

namespace slotwise::test {

class SetClock final : public Clock {
 public:
  std::atomic<std::uint64_t> seconds = 1'800'000'000;

  TimePoint Now() override { return SystemClock().Now(); }
  std::uint64_t UnixSeconds() override { return seconds; }
  bool WaitFor(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
               std::chrono::microseconds most, const std::function<bool()>& holds) override {
    return SystemClock().WaitFor(changed, lock, most, holds);
  }
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_ENGINE_SET_CLOCK_H_
