// Worker: a thread that does one thing after the other: what a rank does beside its rounds.
// Thread-safety: Post, any thread.
#ifndef SLOTWISE_SERVER_ENGINE_WORKER_H_
#define SLOTWISE_SERVER_ENGINE_WORKER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace slotwise {

class Worker {
 public:
  Worker() : thread_([this] { Run(); }) {}
  // Returns once the task that is under way has ended; the others are not begun.
  ~Worker() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    news_.notify_one();
    thread_.join();
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
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
        if (stopping_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;  // the last member: it uses all others
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_WORKER_H_
