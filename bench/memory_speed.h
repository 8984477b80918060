// What a device's memory does, measured in the same run as what is compared with it: the measure of every floor.
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

  // Bytes read plus bytes written a second by large copies; the best of several.
  virtual double CopyBytesPerSecond() = 0;

  // Seconds in which items[indices[i]] were read for all i, and nothing else done, of an array of `items` items of
  // `item_bytes`; the best of several runs and prefetch distances. With a batch's own indices it sees what the caches
  // give that batch. REQUIRES: indices below `items`.
  virtual double GatherSeconds(std::span<const std::uint32_t> indices, std::size_t items,
                               std::size_t item_bytes) = 0;

  // Random cache lines (64 bytes) a second, out of 256 MiB.
  double LinesPerSecond();

 protected:
  MemorySpeed() = default;
};

std::unique_ptr<MemorySpeed> MakeHostMemorySpeed(int threads);

// The current CUDA device's. Only in builds with CUDA.
std::unique_ptr<MemorySpeed> MakeCudaMemorySpeed();

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_MEMORY_SPEED_H_
