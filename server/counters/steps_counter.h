// StepsCounter: a histogram of numbers of steps, in buckets whose bounds are 0, 1, 2, 4, 8 and so on.
// Thread-safety: one thread calls Count, any thread calls Read. A reading is no snapshot.
#ifndef SLOTWISE_SERVER_COUNTERS_STEPS_COUNTER_H_
#define SLOTWISE_SERVER_COUNTERS_STEPS_COUNTER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace slotwise {

// One reading.
struct StepsStats {
  // The last bucket has no bound; the bucket before it has the bound 4096.
  static constexpr std::size_t kBuckets = 15;
  std::array<std::uint64_t, kBuckets> buckets = {};
  std::uint64_t sum = 0;  // of all counted numbers

  // Returns the largest number of steps that counts in the bucket. REQUIRES: it is not the last bucket.
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
