// SimClock: a rank's clock, which follows the scheduler's time. Each rank's clock began at another time, as
// those of processes do.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_SIM_CLOCK_H_
#define SLOTWISE_TESTS_SIM_SIM_CLOCK_H_

#include <condition_variable>
#include <functional>
#include <mutex>

#include "server/engine/clock.h"
#include "tests/sim/scheduler.h"

namespace slotwise::sim {

class SimClock final : public Clock {
 public:
  SimClock(Scheduler& scheduler, int rank, std::chrono::microseconds ahead)
      : scheduler_(scheduler), rank_(rank), ahead_(ahead) {}

  TimePoint Now() override { return TimePoint(ahead_ + std::chrono::microseconds(scheduler_.now())); }
  std::uint64_t UnixSeconds() override {
    return static_cast<std::uint64_t>(
        std::chrono::floor<std::chrono::seconds>(Now()).time_since_epoch().count());
  }

  bool WaitFor(std::condition_variable& /*changed*/, std::unique_lock<std::mutex>& lock,
               std::chrono::microseconds most, const std::function<bool()>& holds) override {
    const Time deadline = scheduler_.now() + static_cast<Time>(most.count());
    poked_ = false;
    while (!holds() && scheduler_.now() < deadline) {
      lock.unlock();
      scheduler_.Await(
          rank_, "AwaitNews", [this] { return poked_; }, deadline);
      poked_ = false;
      lock.lock();
    }
    return holds();
  }

  // Says that this rank's condition may have become true.
  void Poke() { poked_ = true; }

 private:
  Scheduler& scheduler_;
  const int rank_;
  const std::chrono::microseconds ahead_;
  bool poked_ = false;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SIM_CLOCK_H_
