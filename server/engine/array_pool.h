// Host arrays that come back when their last reader lets go of them: batches on their way in, results on their way out.
//
// They are of the device's choice (Device::AllocateHost), so it reads and writes them fastest. Making such an array takes
// long: fresh memory is zeroed page by page by the system, which takes about as long as filling it, and is pinned for a
// GPU.
// Thread-safety: any thread, at any time. Arrays may outlive the pool and its device.
#ifndef SLOTWISE_SERVER_ENGINE_ARRAY_POOL_H_
#define SLOTWISE_SERVER_ENGINE_ARRAY_POOL_H_

#include <cstddef>
#include <memory>
#include <new>

#include "kernels/shard.h"

namespace slotwise {

class ArrayPool {
 public:
  // What is read on its way to the device may be ordinary memory below this size: that costs less than it could save.
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10;
  // As many arrays as this are kept for later, or as many bytes as the pool may keep: those that came back last.
  static constexpr std::size_t kMostKept = 1024;

  ArrayPool(Device& device, std::size_t most_kept_bytes);

  // n elements of any content, for a batch on its way in: ordinary memory if they are few, or the device has none to give.
  // Throws std::bad_alloc.
  template <class T>
  std::shared_ptr<T[]> Take(std::size_t n) {
    if (n * sizeof(T) < kLeastBytes) return std::make_shared_for_overwrite<T[]>(n);
    try {
      return TakeOfDevice<T>(n);
    } catch (const std::bad_alloc&) {
      return std::make_shared_for_overwrite<T[]>(n);
    }
  }

  // n elements of any content, of the device's choice whatever their number: the device's copies to ordinary memory would
  // keep the engine waiting. Throws std::bad_alloc.
  template <class T>
  std::shared_ptr<T[]> TakeOfDevice(std::size_t n) {
    std::shared_ptr<void> array = TakeBytes(n * sizeof(T));
    return {array, static_cast<T*>(array.get())};
  }

 private:
  struct Array {
    HostMemory memory;
    std::size_t bytes;
  };
  class Kept;

  std::shared_ptr<void> TakeBytes(std::size_t bytes);

  Device& device_;
  std::shared_ptr<Kept> kept_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_ARRAY_POOL_H_
