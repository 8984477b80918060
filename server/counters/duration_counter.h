// DurationCounter: a histogram of durations (slotwise/server_stats.h has the buckets).
// Thread-safety: any thread. A reading is no snapshot.
#ifndef SLOTWISE_SERVER_COUNTERS_DURATION_COUNTER_H_
#define SLOTWISE_SERVER_COUNTERS_DURATION_COUNTER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "slotwise/server_stats.h"

namespace slotwise {

class DurationCounter {
 public:
  void Count(std::chrono::nanoseconds duration);
  DurationStats Read() const;

 private:
  std::atomic<std::uint64_t> sum_ns_ = 0;
  std::array<std::atomic<std::uint64_t>, DurationStats::kBuckets> buckets_ = {};
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COUNTERS_DURATION_COUNTER_H_
