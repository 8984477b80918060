// From values that are known when the program runs to types that the compiler knows: each backend compiles a
// body once for each type, and a batch chooses once.
//
// Included by kernels' .inl and backend files alone. Thread-safety: free functions.
#ifndef SLOTWISE_KERNELS_DISPATCH_H_
#define SLOTWISE_KERNELS_DISPATCH_H_

#include <cstdint>

#include "kernels/body/portable.h"
#include "kernels/shard.h"
#include "slotwise/data_type.h"

namespace slotwise {

// Calls use(elements): `numbers` as a pointer to float, body::Float16 or body::BFloat16.
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

// Whether four neighbouring numbers can be loaded and stored at once, wherever in the array they begin at a
// multiple of four.
inline bool LiesByFours(ConstNumbers numbers) {
  return reinterpret_cast<std::uintptr_t>(numbers.data) % (4 * BytesOf(numbers.type)) == 0;
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_DISPATCH_H_
