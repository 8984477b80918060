#include "server/engine/clock.h"

namespace slotwise {
namespace {

class SteadyClock final : public Clock {
 public:
  TimePoint Now() override { return std::chrono::steady_clock::now(); }
  std::uint64_t UnixSeconds() override { return UnixTime(); }
  bool WaitFor(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
               std::chrono::microseconds most, const std::function<bool()>& holds) override {
    return changed.wait_for(lock, most, holds);
  }
};

}  // namespace

Clock& SystemClock() {
  static SteadyClock clock;
  return clock;
}

std::uint64_t UnixTime() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

}  // namespace slotwise
