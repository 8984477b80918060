// Measures the speed of a device's memory in the same run as what is compared with it. Every floor is based
// on this speed.
//
// Thread-safety: one thread at a time. Throws std::bad_alloc, and std::runtime_error for a broken device.
#ifndef SLOTWISE_BENCH_MEMORY_SPEED_H_
#define SLOTWISE_BENCH_MEMORY_SPEED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace slotwise::bench {

class MemorySpeed {
 public:
  virtual ~MemorySpeed() = default;
  MemorySpeed(const MemorySpeed&) = delete;
  MemorySpeed& operator=(const MemorySpeed&) = delete;

  // Returns the bytes read plus the bytes written a second by large copies, the best of several.
  virtual double CopyBytesPerSecond() = 0;

  // Returns the seconds that it takes to read items[indices[i]] for all i, and to do nothing else, in an
  // array of `items` items of `item_bytes`; the best of several runs and prefetch distances. With a batch's
  // own indices, the result includes what the caches give that batch. REQUIRES: indices are below `items`.
  virtual double GatherSeconds(std::span<const std::uint32_t> indices, std::size_t items,
                               std::size_t item_bytes) = 0;

  // Returns how many random cache lines (64 bytes) a second the memory reads, out of 256 MiB.
  double LinesPerSecond();

 protected:
  MemorySpeed() = default;
};

std::unique_ptr<MemorySpeed> MakeHostMemorySpeed(int threads);

// Measures the current CUDA device. Only builds with CUDA have it.
std::unique_ptr<MemorySpeed> MakeCudaMemorySpeed();

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_MEMORY_SPEED_H_
