// Threads: how a rank's threads begin beside the engine's, and how they wait for each other. A server has the
// system's (SystemThreads); a simulator brings its own, which take turns as it draws them.
//
// Thread-safety: Threads and a FileLock, any thread.
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
  // Its end waits for the thread's.
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

  // Runs `body` beside the caller. Throws std::system_error if the system gives no more threads.
  virtual std::unique_ptr<Thread> Begin(std::function<void()> body) = 0;

  // Waits until `holds()` is true. `lock` is held while `holds` runs and released in between. The thread that
  // makes `holds` true does so under the same mutex and notifies `changed`.
  virtual void Wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                    const std::function<bool()>& holds) = 0;
  // The same, but no longer than `longest`. Returns how much of that is left, or nothing if it passed first.
  virtual std::optional<std::chrono::milliseconds> WaitFor(std::condition_variable& changed,
                                                           std::unique_lock<std::mutex>& lock,
                                                           const std::function<bool()>& holds,
                                                           std::chrono::milliseconds longest) = 0;

  // Lets the calling thread, which Begin began, have a processor when no other thread wants it, and else
  // about a quarter of one.
  virtual void GiveWay() {}

 protected:
  Threads() = default;
};

// The system's threads.
Threads& SystemThreads();

// Returns RESOURCE_EXHAUSTED, for what Begin has thrown because the system gives no more threads.
Status NoMoreThreads(const std::system_error& error);

// A mutex that may be held while files are written and synced, for std::scoped_lock.
class FileLock {
 public:
  // `threads` outlives it.
  explicit FileLock(Threads& threads) : threads_(threads) {}

  void lock() {
    std::unique_lock lock(mutex_);
    threads_.Wait(free_, lock, [this] { return !held_; });
    held_ = true;
  }
  // Returns whether it was free in time.
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
