// One array of a round's batch, in device memory: each rank's host writes its own block, an all-gather brings the rest.
//
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_GATHERED_ARRAY_H_
#define SLOTWISE_SERVER_ENGINE_GATHERED_ARRAY_H_

#include <cstddef>
#include <numeric>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/device_array.h"
#include "server/collective/exchange.h"
#include "slotwise/types.h"

namespace slotwise {

template <class T>
class GatheredArray {
 public:
  GatheredArray(Device& device, Exchange& exchange, Rank me)
      : device_(device),
        exchange_(exchange),
        me_(static_cast<std::size_t>(Value(me))),
        array_(device),
        staged_(device) {}

  // Makes room for blocks of sizes[rank] · width elements. Where the host is to write this rank's: in its place if the
  // host can, else in pinned memory that is uploaded. REQUIRES: Device::Wait since the last upload.
  T* Mine(const std::vector<std::size_t>& sizes, std::size_t width = 1) {
    bytes_ = sizes;
    for (std::size_t& bytes : bytes_) bytes *= width * sizeof(T);
    const auto mine = bytes_.begin() + static_cast<std::ptrdiff_t>(me_);
    first_ = std::accumulate(bytes_.begin(), mine, std::size_t{0}) / sizeof(T);
    T* all = array_.Reserve(std::accumulate(mine, bytes_.end(), first_ * sizeof(T)) / sizeof(T));
    return device_.SharesHostMemory() ? all + first_ : staged_.Reserve(*mine / sizeof(T));
  }

  // This rank's block alone; valid until the next call of Mine.
  const T* Alone() {
    if (!device_.SharesHostMemory()) device_.Copy(array_.data() + first_, staged_.data(), bytes_[me_]);
    return array_.data() + first_;
  }

  // Collective. All blocks, in rank order; valid until the next call of Mine.
  const T* Gather() {
    Alone();
    exchange_.AllGatherBlocks(bytes_, array_.data());
    return array_.data();
  }

 private:
  Device& device_;
  Exchange& exchange_;
  const std::size_t me_;
  std::vector<std::size_t> bytes_;  // of each rank's block
  std::size_t first_ = 0;           // of this rank's elements
  DeviceArray<T> array_;
  HostScratch<T> staged_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_GATHERED_ARRAY_H_
