// BusyPolling: an io_context and the thread's loop that runs it, which can be asked to stay awake for a
// while.
//
// A thread that sleeps takes tens of microseconds to wake, which is what a call on a GPU has to spare. So
// code that expects an event within a millisecond or two asks the loop to look for it all the time until
// then. Thread-safety: any thread, but for Run.
#ifndef SLOTWISE_WIRE_BUSY_POLLING_H_
#define SLOTWISE_WIRE_BUSY_POLLING_H_

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <atomic>
#include <chrono>

#include "wire/spare_processors.h"

namespace slotwise {

// How long who has had a call on a GPU stays awake for the next: trainers' steps take milliseconds.
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
  // Stays awake until so long from now, if there are processors for it; REQUIRES: in a handler of this loop.
  void StayAwake(std::chrono::steady_clock::duration time) {
    if (HasSpareProcessors()) awake_until_ = Now() + time.count();
  }
  // The same from any thread.
  void Wake(std::chrono::steady_clock::duration time) {
    if (!HasSpareProcessors()) return;
    StayAwake(time);
    asio::post(context_, [] {});
  }
  // What was expected has come.
  void Relax() { awake_until_ = 0; }

 private:
  using Ticks = std::chrono::steady_clock::rep;
  static Ticks Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

  asio::io_context context_{1};
  std::atomic<Ticks> awake_until_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_BUSY_POLLING_H_
