#include "server/durability/threads.h"

#include <thread>
#include <utility>

namespace slotwise {
namespace {

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
};

}  // namespace

Threads& SystemThreads() {
  static System threads;
  return threads;
}

}  // namespace slotwise
