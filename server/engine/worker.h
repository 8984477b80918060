// Worker: a thread that runs a rank's background tasks one after the other, at lower priority than rounds.
// Thread-safety: any thread may call Post.
#ifndef SLOTWISE_SERVER_ENGINE_WORKER_H_
#define SLOTWISE_SERVER_ENGINE_WORKER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "server/durability/threads.h"

namespace slotwise {

class Worker {
 public:
  // `threads` outlives it.
  explicit Worker(Threads& threads) : threads_(threads), thread_(threads.Begin([this] { Run(); })) {}
  // Waits for the task that is under way; the tasks behind it are dropped.
  ~Worker() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    news_.notify_one();
    thread_.reset();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Post(std::function<void()> task) {
    {
      const std::scoped_lock lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    news_.notify_one();
  }

 private:
  void Run() {
    threads_.GiveWay();
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        threads_.Wait(news_, lock, [this] { return stopping_ || !tasks_.empty(); });
        if (stopping_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  Threads& threads_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::unique_ptr<Threads::Thread> thread_;  // the last member: it uses all others
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_WORKER_H_
