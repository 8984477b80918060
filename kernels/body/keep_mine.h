// The sharder: of a batch that every rank sees, keep the keys that this rank owns, and rebuild the bags' offsets.
//
// Keys are selected in order; a bag's new length is the count of its keys that are kept, and the new offsets are the
// running sum of those counts.
#ifndef SLOTWISE_KERNELS_BODY_KEEP_MINE_H_
#define SLOTWISE_KERNELS_BODY_KEEP_MINE_H_

#include <cstdint>

#include "kernels/body/hash.h"
#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

struct IsMine {
  const std::uint16_t* bucket_map;  // [kBuckets] the owner of each bucket
  std::uint16_t rank;
  SLOTWISE_HD bool operator()(Key key) const { return bucket_map[Bucket(key)] == rank; }
};

struct CountMine {
  IsMine is_mine;
  const Key* keys;
  const std::uint32_t* offsets;
  std::uint32_t* counts;  // [bags]

  SLOTWISE_HD void operator()(std::uint32_t bag) const {
    std::uint32_t count = 0;
    for (std::uint32_t i = offsets[bag]; i < offsets[bag + 1]; ++i) count += is_mine(keys[i]) ? 1 : 0;
    counts[bag] = count;
  }
};

// What of the batch's i-th key this rank keeps beside it.
struct KeyIsMine {
  IsMine is_mine;
  const Key* keys;
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return is_mine(keys[i]); }
};

struct CopyWeights {
  const float* from;
  const std::uint32_t* places;  // of the kept keys
  float* to;
  SLOTWISE_HD void operator()(std::uint32_t i) const { to[i] = from[places[i]]; }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_KEEP_MINE_H_
