// GatheredArray: one array of each batch of a round, in device memory. Each rank writes its own block of
// every batch's array, and all-gathers bring the others' blocks.
//
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_GATHERED_ARRAY_H_
#define SLOTWISE_SERVER_ENGINE_GATHERED_ARRAY_H_

#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/device_array.h"
#include "server/collective/exchange.h"
#include "slotwise/types.h"

namespace slotwise {

template <class T>
class GatheredArray {
 public:
  // A batch's array begins at a multiple of `align` elements.
  GatheredArray(Device& device, Exchange& exchange, Rank me, std::size_t align = 1)
      : exchange_(exchange), me_(static_cast<std::size_t>(Value(me))), align_(align), array_(device) {}

  // Forgets the round before.
  void Clear() {
    batches_.clear();
    size_ = 0;
  }

  // Adds a batch with blocks of sizes[rank] · width elements, and returns its number, from 0.
  std::size_t Add(std::vector<std::size_t> sizes, std::size_t width = 1) {
    for (std::size_t& size : sizes) size *= width;
    const std::size_t first = (size_ + align_ - 1) / align_ * align_;
    size_ = std::accumulate(sizes.begin(), sizes.end(), first);
    std::vector<std::size_t> bytes = sizes;
    for (std::size_t& size : bytes) size *= sizeof(T);
    batches_.push_back({first, std::move(sizes), std::move(bytes)});
    return batches_.size() - 1;
  }

  // Makes room for the batches that were added. Throws std::bad_alloc.
  void Reserve() { array_.Reserve(size_); }

  // REQUIRES: Reserve. Returns this rank's block of a batch's array.
  T* Mine(std::size_t batch) {
    const auto& [first, sizes, bytes] = batches_[batch];
    const auto mine = sizes.begin() + static_cast<std::ptrdiff_t>(me_);
    return array_.data() + std::accumulate(sizes.begin(), mine, first);
  }

  // REQUIRES: Reserve. Returns the blocks of a batch's array for an all-gather; valid until Clear.
  Exchange::Blocks BlocksOf(std::size_t batch) {
    const auto& [first, sizes, bytes] = batches_[batch];
    return {bytes, array_.data() + first};
  }
  // Returns all blocks of a batch's array, in rank order. They are filled once the exchange has gathered
  // BlocksOf(batch), in the order of the exchange's stream, and stay until the next round.
  T* All(std::size_t batch) { return array_.data() + batches_[batch].first; }

  // REQUIRES: Reserve. Collective. Returns all blocks of a batch's array, in rank order. They are filled in
  // the order of the exchange's stream, and stay until the next round.
  const T* Gather(std::size_t batch) {
    const Exchange::Blocks blocks = BlocksOf(batch);
    exchange_.AllGatherBlocks(blocks.bytes, blocks.blocks);
    return All(batch);
  }

 private:
  struct Batch {
    std::size_t first;               // element of the array
    std::vector<std::size_t> sizes;  // of each rank's block, in elements
    std::vector<std::size_t> bytes;  // the same in bytes
  };

  Exchange& exchange_;
  const std::size_t me_;
  const std::size_t align_;
  std::vector<Batch> batches_;
  std::size_t size_ = 0;  // elements of all batches
  DeviceArray<T> array_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_GATHERED_ARRAY_H_
