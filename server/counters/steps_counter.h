// StepsCounter: how often something was how many steps, in buckets whose bounds are 0, 1, 2, 4, 8 and so on.
// Thread-safety: Count by one thread, Read by any. A reading is of no one instant.
#ifndef SLOTWISE_SERVER_COUNTERS_STEPS_COUNTER_H_
#define SLOTWISE_SERVER_COUNTERS_STEPS_COUNTER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace slotwise {

// One reading.
struct StepsStats {
  // The last bucket has no bound; that of the one before is 4096.
  static constexpr std::size_t kBuckets = 15;
  std::array<std::uint64_t, kBuckets> buckets = {};
  std::uint64_t sum = 0;  // of the steps

  // Returns the most steps that count in a bucket. REQUIRES: it is not the last one.
  static constexpr std::uint64_t BoundOf(std::size_t bucket) {
    return bucket == 0 ? 0 : std::uint64_t{1} << (bucket - 1);
  }
  static std::size_t BucketOf(std::uint64_t steps);
  friend bool operator==(const StepsStats&, const StepsStats&) = default;
};

class StepsCounter {
 public:
  void Count(std::uint64_t steps);
  StepsStats Read() const;

 private:
  std::array<std::atomic<std::uint64_t>, StepsStats::kBuckets> buckets_ = {};
  std::atomic<std::uint64_t> sum_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COUNTERS_STEPS_COUNTER_H_
