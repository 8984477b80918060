// CallCounters: counts a rank's lookups and pushes over all transports: their number, their latency, and the
// time in each stage (slotwise/server_stats.h explains the numbers).
//
// A call is counted once, when it is over, by a few additions to shared counters.
// Thread-safety: any thread. A reading is no snapshot: calls that end meanwhile may be in a part of it.
#ifndef SLOTWISE_SERVER_INTAKE_CALL_STATS_H_
#define SLOTWISE_SERVER_INTAKE_CALL_STATS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "server/counters/duration_counter.h"
#include "server/engine/call_times.h"
#include "server/engine/caller.h"
#include "slotwise/server_stats.h"

namespace slotwise {

class CallCounters {
 public:
  // Counts a finished lookup or push; calls of other kinds are not counted.
  void Count(const EndedCall& call);

  // Fills in the rank's lookups and pushes, its start, and for how long it has counted.
  void Read(RankStats& stats) const;

 private:
  // Each kind of call has cache lines of its own.
  struct alignas(64) OfKind {
    void Count(const EndedCall& call);
    CallStats Read() const;

    std::atomic<std::uint64_t> calls = 0;
    std::atomic<std::uint64_t> samples = 0;
    std::atomic<std::uint64_t> keys = 0;
    std::atomic<std::uint64_t> bytes_in = 0;
    std::atomic<std::uint64_t> bytes_out = 0;
    std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(StatusCode::kInternal) + 1> refusals = {};
    std::atomic<std::uint64_t> busy = 0;
    DurationCounter latency;
    std::array<DurationCounter, kCallStages> stages = {};
  };

  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  OfKind lookups_;
  OfKind pushes_;
};

// Logs a finished lookup or push at the level "debug": the caller with its trace, the call's outcome, and its
// latency. Does little at other levels. Thread-safety: any thread.
void LogCall(const Caller& caller, const EndedCall& call);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_CALL_STATS_H_
