// Host arrays that come back when their last reader lets go of them, so that a round's output costs no new memory: fresh
// memory is zeroed page by page by the system, which takes about as long as filling it.
//
// Thread-safety: Take by one thread at a time; arrays are released by any thread, also after the pool and its device.
#ifndef SLOTWISE_SERVER_ENGINE_ARRAY_POOL_H_
#define SLOTWISE_SERVER_ENGINE_ARRAY_POOL_H_

#include <cstddef>
#include <memory>

#include "kernels/shard.h"

namespace slotwise {

class ArrayPool {
 public:
  // As many arrays as this are kept for later, the largest ones.
  static constexpr std::size_t kKept = 4;

  explicit ArrayPool(Device& device);

  // n elements of any content, in host memory of the device's choice. Throws std::bad_alloc.
  std::shared_ptr<float[]> Take(std::size_t n);

 private:
  struct Array {
    HostMemory memory;
    std::size_t size;
  };
  class Kept;

  Device& device_;
  std::shared_ptr<Kept> kept_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_ARRAY_POOL_H_
