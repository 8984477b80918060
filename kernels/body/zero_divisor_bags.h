// These bodies leave the keys of zero-divisor bags out of a batch. Such a bag has keys, but weights that make
// the combiner's divisor 0. It becomes an empty bag, so the other bags keep their numbers.
#ifndef SLOTWISE_KERNELS_BODY_ZERO_DIVISOR_BAGS_H_
#define SLOTWISE_KERNELS_BODY_ZERO_DIVISOR_BAGS_H_

#include <cstdint>

#include "kernels/body/pool.h"
#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

// Writes the number of each bag's keys, 0 for a zero-divisor bag. The zero-divisor bags are numbered
// (backend/concept.h).
struct CountKeysThatCount {
  static constexpr bool kNumbersMost = false;
  BagDivisor divisor_of;
  std::uint32_t* counts;  // [bags]

  SLOTWISE_HD bool operator()(std::uint32_t bag) const {
    const std::uint32_t keys = divisor_of.offsets[bag + 1] - divisor_of.offsets[bag];
    const bool is_cancelled = keys > 0 && divisor_of(bag) == 0.0F;
    counts[bag] = is_cancelled ? 0 : keys;
    return is_cancelled;
  }
  SLOTWISE_HD void Number(std::uint32_t /*bag*/, bool /*is_cancelled*/, std::uint32_t /*number*/) const {}
};

// Copies a bag's keys and weights to the bag's place among the keys that count.
struct CopyKeysThatCount {
  const Key* keys;
  const float* weights;
  const std::uint32_t* offsets;      // [bags + 1]
  const std::uint32_t* new_offsets;  // [bags + 1]
  Key* new_keys;
  float* new_weights;

  SLOTWISE_HD void operator()(std::uint32_t bag) const {
    const std::uint32_t from = offsets[bag];
    const std::uint32_t to = new_offsets[bag];
    for (std::uint32_t i = 0; i < new_offsets[bag + 1] - to; ++i) {
      new_keys[to + i] = keys[from + i];
      new_weights[to + i] = weights[from + i];
    }
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ZERO_DIVISOR_BAGS_H_
