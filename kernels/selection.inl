// A Selection lists the indices that a condition accepts, and counts them.
//
// Thread-safety: same as the queue.
#ifndef SLOTWISE_KERNELS_SELECTION_INL_
#define SLOTWISE_KERNELS_SELECTION_INL_

#include <cstdint>

#include "kernels/backend/concept.h"

namespace slotwise {

template <Backend B>
class Selection {
 public:
  // Writes the indices in [0, n) that `keep` accepts to `out`, in order. Waits for the queue, and returns
  // their number. REQUIRES: `out` has room for n. Throws std::bad_alloc the first time.
  template <class Keep>
  std::uint32_t Select(typename B::Queue& queue, std::uint32_t n, std::uint32_t* out, Keep keep) {
    std::uint32_t* const count = count_.Reserve(queue, 1);
    B::SelectIndices(queue, n, out, count, keep);
    return B::Get(queue, count);
  }

 private:
  typename B::template Scratch<std::uint32_t> count_;  // [1]
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_SELECTION_INL_
