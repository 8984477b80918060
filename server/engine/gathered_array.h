// GatheredArray: one array of a round's batch, in device memory. Each rank writes its own block, and an
// all-gather brings the others' blocks.
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
      : exchange_(exchange), me_(static_cast<std::size_t>(Value(me))), array_(device) {}

  // Makes room for blocks of sizes[rank] · width elements, and returns this rank's block.
  T* Mine(const std::vector<std::size_t>& sizes, std::size_t width = 1) {
    bytes_ = sizes;
    for (std::size_t& bytes : bytes_) bytes *= width * sizeof(T);
    const auto mine = bytes_.begin() + static_cast<std::ptrdiff_t>(me_);
    const std::size_t first = std::accumulate(bytes_.begin(), mine, std::size_t{0});
    T* all = array_.Reserve(std::accumulate(mine, bytes_.end(), first) / sizeof(T));
    return all + first / sizeof(T);
  }

  // Collective. Returns all blocks, in rank order. They are there in the order of the exchange's stream,
  // until the next call of Mine.
  const T* Gather() {
    exchange_.AllGatherBlocks(bytes_, array_.data());
    return array_.data();
  }

  std::size_t bytes() const { return array_.bytes(); }

 private:
  Exchange& exchange_;
  const std::size_t me_;
  std::vector<std::size_t> bytes_;  // of each rank's block
  DeviceArray<T> array_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_GATHERED_ARRAY_H_
