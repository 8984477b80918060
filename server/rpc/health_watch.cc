#include "server/rpc/health_watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace slotwise {

HealthWatch::HealthWatch(std::chrono::milliseconds limit, std::function<Duration()> busy_for,
                         std::function<void(bool)> set_serving)
    : limit_(limit),
      busy_for_(std::move(busy_for)),
      set_serving_(std::move(set_serving)),
      thread_([this] { Run(); }) {}

HealthWatch::~HealthWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void HealthWatch::Run() {
  const auto pause = std::clamp<std::chrono::milliseconds>(limit_ / 10, std::chrono::milliseconds(1),
                                                           std::chrono::seconds(1));
  bool serving = true;
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, pause, [this] { return stop_; })) {
    const bool now = busy_for_() < limit_;
    if (now == std::exchange(serving, now)) continue;
    if (now) {
      spdlog::info("the engine goes on: health checks are answered SERVING");
    } else {
      spdlog::warn("the engine has been at one round for {} ms: health checks are answered NOT_SERVING",
                   limit_.count());
    }
    set_serving_(now);
  }
}

}  // namespace slotwise
