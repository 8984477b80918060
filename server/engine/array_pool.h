// ArrayPool: reuses host arrays. An array returns to the pool when its last reader lets go of it. The arrays
// hold batches on their way in, and results on their way out.
//
// The device allocates the arrays (Device::AllocateHost), so the device reads and writes them fastest.
// Allocation is slow: the system zeroes fresh memory page by page, which takes about as long as filling it,
// and pins the memory for a GPU.
// Thread-safety: any thread, at any time. Arrays may outlive the pool and its device.
#ifndef SLOTWISE_SERVER_ENGINE_ARRAY_POOL_H_
#define SLOTWISE_SERVER_ENGINE_ARRAY_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "kernels/shard.h"

namespace slotwise {

class ArrayPool {
 public:
  // A smaller array for the device lies in ordinary memory: memory from the pool would cost more than it
  // saves.
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

  // The pool keeps the arrays that came back last, as long as the kept arrays and those in use take at most
  // `most_bytes`.
  ArrayPool(Device& device, std::size_t most_bytes);

  // Returns n elements of any content, for a batch on its way in: in ordinary memory if n is small or the
  // device can allocate no more. Throws std::bad_alloc.
  template <class T>
  std::shared_ptr<T[]> Take(std::size_t n) {
    if (n * sizeof(T) < kLeastBytes) return std::make_shared_for_overwrite<T[]>(n);
    try {
      return TakeOfDevice<T>(n);
    } catch (const std::bad_alloc&) {
      return std::make_shared_for_overwrite<T[]>(n);
    }
  }

  // Returns n elements of any content, always allocated by the device: a copy from the device to ordinary
  // memory would keep the engine waiting. Throws std::bad_alloc.
  template <class T>
  std::shared_ptr<T[]> TakeOfDevice(std::size_t n) {
    std::shared_ptr<void> array = TakeBytes(n * sizeof(T));
    return {array, static_cast<T*>(array.get())};
  }

 private:
  struct Array {
    HostMemory memory;
    std::size_t bytes;
    std::uint64_t came_back = 0;  // counts returns to the pool
  };
  class Kept;

  std::shared_ptr<void> TakeBytes(std::size_t bytes);

  Device& device_;
  std::shared_ptr<Kept> kept_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_ARRAY_POOL_H_
