// Measures the speed of a device's memory, in the same run as the operations that are compared with it. Every
// floor derives from this speed.
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

  // Returns the bytes read plus the bytes written per second by large copies; the best of several runs.
  virtual double CopyBytesPerSecond() = 0;

  // Returns the seconds to read items[indices[i]] for all i, and nothing else, from an array of `items` items
  // of `item_bytes`; the best of several runs and prefetch distances. With a batch's own indices, the result
  // includes the effect of the caches on that batch. REQUIRES: indices are below `items`.
  virtual double GatherSeconds(std::span<const std::uint32_t> indices, std::size_t items,
                               std::size_t item_bytes) = 0;

  // Returns the number of random cache lines (64 bytes) that the memory reads a second, from 256 MiB.
  double LinesPerSecond();

 protected:
  MemorySpeed() = default;
};

std::unique_ptr<MemorySpeed> MakeHostMemorySpeed(int threads);

// Measures the current CUDA device. Only builds with CUDA have it.
std::unique_ptr<MemorySpeed> MakeCudaMemorySpeed();

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_MEMORY_SPEED_H_
