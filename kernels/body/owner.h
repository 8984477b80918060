// Owner is the one function of (bag, key) by which the sharder and the all-to-all plan decide who owns a key.
//
// Today a key's bucket alone decides. A placement by slot, or of whole tables, is another type with the same
// members: the sharder (keep_mine.h) and the all-to-all plan (all_to_all.h) take the type as a template
// argument.
#ifndef SLOTWISE_KERNELS_BODY_OWNER_H_
#define SLOTWISE_KERNELS_BODY_OWNER_H_

#include <cstdint>

#include "kernels/body/hash.h"
#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

struct Owner {
  // Says whether the owner depends on the bag. If not, a caller that has only the key passes kNoBag.
  static constexpr bool kNeedsBag = false;

  const std::uint16_t* bucket_map;  // [kBuckets] the rank that owns each bucket

  // Returns the rank that owns `key` in `bag`, which is counted over the whole batch.
  SLOTWISE_HD std::uint16_t operator()(std::uint32_t /*bag*/, Key key) const {
    return bucket_map[Bucket(key)];
  }
};

inline constexpr std::uint32_t kNoBag = ~std::uint32_t{0};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_OWNER_H_
