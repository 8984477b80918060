// Watchdog: notices a collective that does not end, because another rank is stuck or gone, so that nobody waits for ever.
//
// Whoever runs collectives registers each: one that its thread waits for as a scope, one that goes on behind the call
// with a way to ask whether it has ended. A thread of the watchdog's looks at them now and then. What is to happen then
// is the program's: the server logs it and ends the process.
// Thread-safety: operations are registered by one thread at a time; Start by any.
#ifndef SLOTWISE_SERVER_COLLECTIVE_WATCHDOG_H_
#define SLOTWISE_SERVER_COLLECTIVE_WATCHDOG_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace slotwise {

class Watchdog {
 public:
  Watchdog() = default;
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From now on, if an operation has not ended `limit` after it was registered, or says that it has failed, `stuck` is
  // called, once and from the watchdog's thread, with a sentence that names it: "AllGather of 1352 bytes has not ended
  // after 60.0 s". Called again, it changes both. Before the first call nothing is watched.
  void Start(std::chrono::milliseconds limit, std::function<void(const std::string&)> stuck);

  // An operation that the caller's thread waits for: it lasts as long as the scope. Scopes end in reverse order.
  class Scope {
   public:
    Scope(Watchdog& watchdog, const char* name, std::size_t bytes);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Watchdog& watchdog_;
  };

  // One that goes on when the call that began it returns. `ended` is asked from any thread, not after it said true; it
  // throws std::exception if the operation has failed.
  void Add(const char* name, std::size_t bytes, std::function<bool()> ended);

  // Forgets added operations that have ended: what their `ended` uses may go then.
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
  // REQUIRES: mutex_ is held. What is wrong, if anything is.
  std::optional<std::string> Look();
  std::optional<std::string> ForgetEndedLocked();
  std::optional<std::string> Overdue(const Operation& operation) const;

  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::chrono::milliseconds limit_{0};
  std::function<void(const std::string&)> stuck_;
  std::vector<Operation> scopes_;
  std::vector<Operation> added_;  // the oldest first
  std::thread thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_WATCHDOG_H_
