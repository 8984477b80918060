// ZeroDivisorBags leaves the keys of bags whose divisor is 0 out of a batch of weighted bags. Such a bag
// contributes nothing to a push.
//
// Every rank sees the whole batch and so leaves out the same keys, before it selects its own keys. The arrays
// of the keys that are left last until the next LeaveOut.
// Thread-safety: same as the queue. All arrays are in device memory.
#ifndef SLOTWISE_KERNELS_ZERO_DIVISOR_BAGS_INL_
#define SLOTWISE_KERNELS_ZERO_DIVISOR_BAGS_INL_

#include <cstddef>
#include <cstdint>

#include "kernels/backend/concept.h"
#include "kernels/body/pool.h"
#include "kernels/body/zero_divisor_bags.h"
#include "slotwise/batch.h"

namespace slotwise {

template <Backend B>
class ZeroDivisorBags {
 public:
  using Queue = typename B::Queue;

  // Returns `batch` with its zero-divisor bags emptied, or the batch itself if it has none. `divisor_of`
  // computes the divisors of the batch's bags. REQUIRES: the batch has weights. Waits. Throws std::bad_alloc.
  BatchView LeaveOut(Queue& queue, const BatchView& batch, const body::BagDivisor& divisor_of) {
    const auto bags = static_cast<std::uint32_t>(batch.bags());
    std::uint32_t* const offsets = offsets_.Reserve(queue, bags + std::size_t{1});
    if (B::ForEachNumbered(queue, bags, body::CountKeysThatCount{divisor_of, offsets}) == 0) return batch;
    B::ExclusiveScan(queue, offsets, bags, offsets);
    const std::uint32_t left = B::Get(queue, offsets + bags);
    Key* const keys = keys_.Reserve(queue, left);
    float* const weights = weights_.Reserve(queue, left);
    B::ForEach(queue, bags,
               body::CopyKeysThatCount{batch.keys.data(), batch.weights.data(), batch.offsets.data(), offsets,
                                       keys, weights});
    return {{keys, left}, {offsets, bags + std::size_t{1}}, {weights, left}};
  }

 private:
  typename B::template Scratch<std::uint32_t> offsets_;  // [bags + 1]
  typename B::template Scratch<Key> keys_;
  typename B::template Scratch<float> weights_;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_ZERO_DIVISOR_BAGS_INL_
