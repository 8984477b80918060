// AddToEach adds a number to each word of an array.
#ifndef SLOTWISE_KERNELS_BODY_ADD_TO_EACH_H_
#define SLOTWISE_KERNELS_BODY_ADD_TO_EACH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/body/portable.h"

namespace slotwise::body {

struct AddToEach {
  const std::uint32_t* from;
  std::uint32_t* to;
  std::uint32_t add;
  SLOTWISE_HD void operator()(std::size_t i) const { to[i] = from[i] + add; }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ADD_TO_EACH_H_
