// Threads starts threads beside the engine's, and waits on conditions. A server uses the system's threads
// (SystemThreads); a simulator has its own, whose turns it draws.
//
// Thread-safety: Threads and FileLock, any thread.
#ifndef SLOTWISE_SERVER_DURABILITY_THREADS_H_
#define SLOTWISE_SERVER_DURABILITY_THREADS_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>

#include "slotwise/status.h"

namespace slotwise {

class Threads {
 public:
  // The destructor waits for the thread's end.
  class Thread {
   public:
    virtual ~Thread() = default;
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;

   protected:
    Thread() = default;
  };

  virtual ~Threads() = default;
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // Runs `body` in a new thread. Throws std::system_error if the system gives no more threads.
  virtual std::unique_ptr<Thread> Begin(std::function<void()> body) = 0;

  // Waits until `holds()` is true. `lock` is held while `holds` runs and released in between. The thread that
  // makes `holds` true does so under the same mutex and notifies `changed`.
  virtual void Wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                    const std::function<bool()>& holds) = 0;
  // Waits so too, `longest` at most. Returns the time that is left, or nothing if `longest` passed first.
  virtual std::optional<std::chrono::milliseconds> WaitFor(std::condition_variable& changed,
                                                           std::unique_lock<std::mutex>& lock,
                                                           const std::function<bool()>& holds,
                                                           std::chrono::milliseconds longest) = 0;

  // Lowers the priority of the calling thread, which Begin has started: it gets a processor when no other
  // thread wants it, and else about a quarter of one.
  virtual void GiveWay() {}

 protected:
  Threads() = default;
};

// Returns the system's threads.
Threads& SystemThreads();

// Converts the exception that Begin throws if the system gives no more threads to RESOURCE_EXHAUSTED.
Status NoMoreThreads(const std::system_error& error);

// A mutex that may be held while files are written and synced, for std::scoped_lock.
class FileLock {
 public:
  // REQUIRES: `threads` outlives this.
  explicit FileLock(Threads& threads) : threads_(threads) {}

  void lock() {
    std::unique_lock lock(mutex_);
    threads_.Wait(free_, lock, [this] { return !held_; });
    held_ = true;
  }
  // Returns whether the lock was free in time.
  bool try_lock_for(std::chrono::milliseconds longest) {
    std::unique_lock lock(mutex_);
    if (!threads_.WaitFor(
            free_, lock, [this] { return !held_; }, longest))
      return false;
    held_ = true;
    return true;
  }
  void unlock() {
    {
      const std::scoped_lock lock(mutex_);
      held_ = false;
    }
    free_.notify_one();
  }

 private:
  Threads& threads_;
  std::mutex mutex_;
  std::condition_variable free_;
  bool held_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_THREADS_H_
