// IdleWait: how a rank waits where no rank has work, until its own request queue or another rank has some.
//
// A bell wakes a rank that has one, and its request queue one that is alone. Any other rank looks whether it
// was woken: often at first, then seldom, to leave the core alone. A rank that has just served a batch by its
// device's memory stays awake for a moment, because the next batch comes soon, and a rank that sleeps hears
// of it tens of microseconds later. Thread-safety: the engine's thread only. Await is collective.
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
  // The arguments outlive it. `stays_awake`: behind batches that came by the device's memory.
  IdleWait(Clock& clock, Collective& collective, RequestQueue& request_queue, bool stays_awake)
      : clock_(clock), collective_(collective), request_queue_(request_queue), stays_awake_(stays_awake) {}

  // A batch came by the device's memory.
  void NoteBusyPolling() {
    if (stays_awake_) polls_until_ = clock_.Now() + kBusyPollingTime;
  }

  // Returns at once, or stays awake until the request queue has news, or done(), or the moment is over.
  template <class Done>
  void StayAwakeUntil(const Done& done) const {
    while (clock_.Now() < polls_until_ && !request_queue_.HasNews() && !done()) {
    }
  }

  // Beside is what the engine's thread does while it waits.
  struct Beside {
    // Does some of it, and returns after what time it is to be called again; nothing: not by the clock.
    std::function<std::optional<std::chrono::microseconds>()> advance;
    // After what time the first deadline of a step that waits for parts comes, and what is done for those who
    // wait. Nothing: no step waits, and `tell` is not called.
    std::optional<std::chrono::milliseconds> due = {};
    std::function<void()> tell = nullptr;
  };
  // All ranks come here after the same decision. The first rank that gets work, or finds that the first
  // step's deadline has come, wakes the others.
  void Await(const Beside& beside);

  // Those who wait for parts are looked at so often, for their deadlines.
  static constexpr std::chrono::milliseconds kTellEvery{100};
  // After what times a checkpoint goes on that is under way: soon, or in a tick.
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

  // How long a rank that has waited so long looks away.
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
