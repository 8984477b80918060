// Clock: the engine's time, and its waits. A server uses the system's clock; a simulator brings its own.
// UnixTime: wall-clock time, which other processes share. It may jump when somebody sets it.
//
// Thread-safety: any thread.
#ifndef SLOTWISE_SERVER_ENGINE_CLOCK_H_
#define SLOTWISE_SERVER_ENGINE_CLOCK_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace slotwise {

class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  virtual TimePoint Now() = 0;
  // Returns the seconds since 1970.
  virtual std::uint64_t UnixSeconds() = 0;

  // Waits until `holds()` is true or `most` has passed, and returns the last result of `holds()`. `lock` is
  // held while `holds` runs and released in between. The thread that makes `holds` true does so under the
  // same mutex and notifies `changed`.
  virtual bool WaitFor(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                       std::chrono::microseconds most, const std::function<bool()>& holds) = 0;

 protected:
  Clock() = default;
};

// Returns the system's steady clock.
Clock& SystemClock();

// Returns the seconds since 1970, by the system's clock.
std::uint64_t UnixTime();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CLOCK_H_
