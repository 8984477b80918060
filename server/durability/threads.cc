#include "server/durability/threads.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace slotwise {
namespace {

// With this nice value above the other threads of its process, a thread gets a quarter of a processor that
// one of them wants whole. Less would starve it on a busy machine, and the engine may wait for it.
constexpr int kNicer = 5;

class SystemThread final : public Threads::Thread {
 public:
  explicit SystemThread(std::function<void()> body) : thread_(std::move(body)) {}
  ~SystemThread() override { thread_.join(); }

 private:
  std::thread thread_;
};

class System final : public Threads {
 public:
  std::unique_ptr<Thread> Begin(std::function<void()> body) override {
    return std::make_unique<SystemThread>(std::move(body));
  }
  void Wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
            const std::function<bool()>& holds) override {
    changed.wait(lock, holds);
  }
  std::optional<std::chrono::milliseconds> WaitFor(std::condition_variable& changed,
                                                   std::unique_lock<std::mutex>& lock,
                                                   const std::function<bool()>& holds,
                                                   std::chrono::milliseconds longest) override {
    using std::chrono::steady_clock;
    const steady_clock::time_point end = steady_clock::now() + longest;
    if (!changed.wait_until(lock, end, holds)) return std::nullopt;
    return std::max(std::chrono::milliseconds(0),
                    std::chrono::duration_cast<std::chrono::milliseconds>(end - steady_clock::now()));
  }
  void GiveWay() override {
    // 0 is the calling thread. A SCHED_BATCH thread preempts no other thread when it wakes up.
    const sched_param none{};
    ::sched_setscheduler(0, SCHED_BATCH, &none);
    ::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + kNicer);
  }
};

}  // namespace

Threads& SystemThreads() {
  static System threads;
  return threads;
}

Status NoMoreThreads(const std::system_error& error) {
  return ResourceExhausted("the system gives this process no more threads (" + error.code().message() + ")");
}

}  // namespace slotwise
