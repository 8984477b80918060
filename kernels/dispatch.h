// These functions turn values that are known at run time into types that the compiler knows: each backend
// compiles a body once for each type, and a batch chooses once.
//
// Only .inl and backend files of kernels/ include this header. Thread-safety: free functions.
#ifndef SLOTWISE_KERNELS_DISPATCH_H_
#define SLOTWISE_KERNELS_DISPATCH_H_

#include <cstdint>

#include "kernels/body/portable.h"
#include "kernels/shard.h"
#include "slotwise/data_type.h"

namespace slotwise {

// Calls use(elements) with `numbers` as a pointer to float, body::Float16 or body::BFloat16.
template <class Use>
void WithElements(ConstNumbers numbers, Use use) {
  switch (numbers.type) {
    case DataType::kFloat32:
      return use(static_cast<const float*>(numbers.data));
    case DataType::kFloat16:
      return use(static_cast<const body::Float16*>(numbers.data));
    case DataType::kBFloat16:
      return use(static_cast<const body::BFloat16*>(numbers.data));
  }
}

// Returns whether four neighbouring numbers can be loaded and stored at once, from every index that is a
// multiple of four.
inline bool LiesByFours(ConstNumbers numbers) {
  return reinterpret_cast<std::uintptr_t>(numbers.data) % (4 * BytesOf(numbers.type)) == 0;
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_DISPATCH_H_
