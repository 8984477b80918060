// The Watchdog notices a collective that does not end because another rank is stuck or gone, so that no rank
// waits for ever.
//
// Code that runs collectives registers each one: as a Scope if its thread waits for the collective, or by
// Add, with a function that says whether the collective has ended, if the collective goes on after the call.
// The watchdog's thread looks at the collectives from time to time. The program's function says what happens
// if one is stuck: the server logs the collective and ends the process.
// Thread-safety: one thread at a time registers operations; any thread may call Start.
#ifndef SLOTWISE_SERVER_COLLECTIVE_WATCHDOG_H_
#define SLOTWISE_SERVER_COLLECTIVE_WATCHDOG_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/counters/duration_counter.h"

namespace slotwise {

class Watchdog {
 public:
  Watchdog() = default;
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From now on, if an operation has not ended `limit` after it was registered, or reports that it has
  // failed, calls `stuck`, once and from the watchdog's thread, with a sentence that names the operation:
  // "AllGather of 1352 bytes has not ended after 60.0 s". A second call changes limit and function. Before
  // the first call nothing is watched.
  void Start(std::chrono::milliseconds limit, std::function<void(const std::string&)> stuck);

  // An operation that the caller's thread waits for; it lasts as long as the scope. Scopes end in reverse
  // order. `durations`, which outlives the scope, counts how long it lasted; null: it is not counted.
  class Scope {
   public:
    Scope(Watchdog& watchdog, const char* name, std::size_t bytes, DurationCounter* durations = nullptr);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Watchdog& watchdog_;
    DurationCounter* const durations_;
  };

  // While a Patience exists, operations may take `limit`.
  class Patience {
   public:
    Patience(Watchdog& watchdog, std::chrono::milliseconds limit)
        : watchdog_(watchdog), before_(watchdog.SetLimit(limit)) {}
    ~Patience() { watchdog_.SetLimit(before_); }
    Patience(const Patience&) = delete;
    Patience& operator=(const Patience&) = delete;

   private:
    Watchdog& watchdog_;
    const std::chrono::milliseconds before_;
  };

  // Registers an operation that goes on after the call that began it returns. `ended` is called from any
  // thread, but not after it returned true; it throws std::exception if the operation has failed.
  void Add(const char* name, std::size_t bytes, std::function<bool()> ended);

  // Returns how long the scopes that are over have lasted, in all. Any thread may call this.
  std::chrono::nanoseconds waited() const {
    return std::chrono::nanoseconds(waited_ns_.load(std::memory_order_relaxed));
  }

  // Forgets added operations that have ended. The resources that their `ended` functions use may be freed
  // afterwards.
  void ForgetEnded();

 private:
  using Clock = std::chrono::steady_clock;
  struct Operation {
    const char* name;
    std::size_t bytes;
    Clock::time_point begin;
    std::function<bool()> ended;
  };

  void Run();
  // Returns the limit that was set before.
  std::chrono::milliseconds SetLimit(std::chrono::milliseconds limit);
  // Returns a sentence about an operation that is stuck or has failed, if there is one. REQUIRES: mutex_ is
  // held.
  std::optional<std::string> Look();
  std::optional<std::string> ForgetEndedLocked();
  std::optional<std::string> Overdue(const Operation& operation) const;

  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::chrono::milliseconds limit_{0};
  std::function<void(const std::string&)> stuck_;
  std::vector<Operation> scopes_;
  std::vector<Operation> added_;  // the oldest is first
  std::atomic<std::int64_t> waited_ns_ = 0;
  std::thread thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_WATCHDOG_H_
