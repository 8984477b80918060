// HealthWatch makes the health service report that a server whose engine is stuck does not serve.
// Thread-safety: made and destroyed by one thread; it calls its functions from a thread of its own.
#ifndef SLOTWISE_SERVER_RPC_HEALTH_WATCH_H_
#define SLOTWISE_SERVER_RPC_HEALTH_WATCH_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace slotwise {

class HealthWatch {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // Calls `set_serving(false)` once `busy_for()` is `limit` or more, and `set_serving(true)` once it is less
  // again. The server is SERVING when the watch begins.
  HealthWatch(std::chrono::milliseconds limit, std::function<Duration()> busy_for,
              std::function<void(bool)> set_serving);
  // Returns when no call is under way.
  ~HealthWatch();
  HealthWatch(const HealthWatch&) = delete;
  HealthWatch& operator=(const HealthWatch&) = delete;

 private:
  void Run();

  const std::chrono::milliseconds limit_;
  const std::function<Duration()> busy_for_;
  const std::function<void(bool)> set_serving_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_HEALTH_WATCH_H_
