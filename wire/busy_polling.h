// BusyPolling is an io_context with a thread's loop that can stay awake for a while.
//
// A sleeping thread takes tens of microseconds to wake up. A call on a GPU should not lose that time, so code
// that expects an event within a millisecond or two asks the loop to poll until then.
// Thread-safety: any thread, but for Run.
#ifndef SLOTWISE_WIRE_BUSY_POLLING_H_
#define SLOTWISE_WIRE_BUSY_POLLING_H_

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <atomic>
#include <chrono>

#include "wire/spare_processors.h"

namespace slotwise {

// How long a thread stays awake for the next call after a call on a GPU: trainers' steps take milliseconds.
inline constexpr std::chrono::milliseconds kBusyPollingTime{2};

class BusyPolling {
 public:
  asio::io_context& context() { return context_; }

  // Runs handlers until there is no more work.
  void Run() {
    while (!context_.stopped()) {
      if (Now() < awake_until_.load(std::memory_order_relaxed)) {
        context_.poll();
      } else {
        context_.run_one();
      }
    }
  }
  // Stays awake for `time`, if there are spare processors. REQUIRES: called in a handler of this loop.
  void StayAwake(std::chrono::steady_clock::duration time) {
    if (HasSpareProcessors()) awake_until_ = Now() + time.count();
  }
  // Does the same from any thread.
  void Wake(std::chrono::steady_clock::duration time) {
    if (!HasSpareProcessors()) return;
    StayAwake(time);
    asio::post(context_, [] {});
  }
  // Ends the busy polling, because the expected event has come.
  void Relax() { awake_until_ = 0; }

 private:
  using Ticks = std::chrono::steady_clock::rep;
  static Ticks Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

  asio::io_context context_{1};
  std::atomic<Ticks> awake_until_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_BUSY_POLLING_H_
