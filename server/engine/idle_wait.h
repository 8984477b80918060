// IdleWait: lets a rank wait while no rank has work, until its own request queue or another rank has some.
//
// Another rank wakes a rank through a bell, if the collective has one; a single rank is woken by its request
// queue. Without a bell a rank polls: often at first, then seldom, to leave the core to others. A rank that
// has just served a batch from a GPU's shared buffer polls for a moment, because the next batch comes soon
// and a sleeping rank would notice it tens of microseconds later.
// Thread-safety: the engine's thread only. Await is collective.
#ifndef SLOTWISE_SERVER_ENGINE_IDLE_WAIT_H_
#define SLOTWISE_SERVER_ENGINE_IDLE_WAIT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "server/collective/collective.h"
#include "server/engine/clock.h"
#include "server/engine/schedule/request_queue.h"

namespace slotwise {

class IdleWait {
 public:
  // The arguments outlive it. `stays_awake`: whether to poll after batches from the device's shared buffers.
  IdleWait(Clock& clock, Collective& collective, RequestQueue& request_queue, bool stays_awake)
      : clock_(clock), collective_(collective), request_queue_(request_queue), stays_awake_(stays_awake) {}

  // A batch came from a shared buffer of device memory.
  void NoteBusyPolling() {
    if (stays_awake_) polls_until_ = clock_.Now() + kBusyPollingTime;
  }

  // Polls until the request queue has news, done() is true, or the time for polling is over.
  template <class Done>
  void StayAwakeUntil(const Done& done) const {
    while (clock_.Now() < polls_until_ && !request_queue_.HasNews() && !done()) {
    }
  }

  // The tasks of the engine's thread while it waits.
  struct Beside {
    // Does a piece of background work, and returns the time until its next call; nothing: no timed call.
    std::function<std::optional<std::chrono::microseconds>()> advance;
    // The time until the first deadline of an incomplete step, and a function that is called now and then for
    // the callers who wait for parts. Nothing: no step is incomplete, and `tell` is not called.
    std::optional<std::chrono::milliseconds> due = {};
    std::function<void()> tell = nullptr;
  };
  // All ranks call this after the same decision. The first rank that gets work, or reaches the first step's
  // deadline, wakes the others.
  void Await(const Beside& beside);

  // The period of `tell`, which checks the deadlines of callers who wait for parts.
  static constexpr std::chrono::milliseconds kTellEvery{100};
  // The times after which a checkpoint under way goes on: soon, or in a tick.
  static constexpr std::chrono::microseconds kSoon{50};
  static constexpr std::chrono::microseconds kTick{4000};

 private:
  static constexpr std::chrono::microseconds kFirstPause{50};
  static constexpr std::chrono::microseconds kLastPause{2000};
  static constexpr std::chrono::microseconds kLongPause{4000};
  static constexpr std::chrono::milliseconds kRecently{20};
  static constexpr std::chrono::milliseconds kLongAgo{1000};
  static constexpr std::chrono::microseconds kAlone{1'000'000};
  static constexpr std::chrono::microseconds kByBell{100'000};
  static constexpr std::chrono::milliseconds kBusyPollingTime{2};

  // Returns the pause between two polls of a rank that has waited for `waited`.
  std::chrono::microseconds Pause(Clock::TimePoint::duration waited) const;

  Clock& clock_;
  Collective& collective_;
  RequestQueue& request_queue_;
  const bool stays_awake_;
  std::uint64_t waits_ = 0;
  Clock::TimePoint polls_until_{};
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_IDLE_WAIT_H_
