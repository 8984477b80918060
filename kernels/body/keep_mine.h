// The sharder's bodies keep the keys that this rank owns of a batch that every rank sees, and rebuild the
// bags' offsets.
//
// Keys are selected in order; a bag's new length is the count of its keys that are kept, and the new offsets
// are the running sum of those counts.
#ifndef SLOTWISE_KERNELS_BODY_KEEP_MINE_H_
#define SLOTWISE_KERNELS_BODY_KEEP_MINE_H_

#include <cstdint>

#include "kernels/body/owner.h"
#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

// Returns whether `rank` owns a key. Owner: see owner.h.
template <class Owner>
struct IsMine {
  Owner owner;
  std::uint16_t rank;
  SLOTWISE_HD bool operator()(std::uint32_t bag, Key key) const { return owner(bag, key) == rank; }
  // A selection of keys has no bag at hand, and needs none while the owner depends on the key alone.
  SLOTWISE_HD bool operator()(Key key) const
    requires(!Owner::kNeedsBag)
  {
    return owner(kNoBag, key) == rank;
  }
};

// Counts the keys of each bag that this rank keeps.
template <class Owner>
struct CountMine {
  IsMine<Owner> is_mine;
  const Key* keys;
  const std::uint32_t* offsets;
  std::uint32_t* counts;  // [bags]

  SLOTWISE_HD void operator()(std::uint32_t bag) const {
    std::uint32_t count = 0;
    for (std::uint32_t i = offsets[bag]; i < offsets[bag + 1]; ++i) count += is_mine(bag, keys[i]) ? 1 : 0;
    counts[bag] = count;
  }
};

// Returns whether this rank keeps the batch's i-th key, and so the key's weight.
template <class Owner>
struct KeyIsMine {
  IsMine<Owner> is_mine;
  const Key* keys;
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return is_mine(keys[i]); }
};

// Copies the weights of the kept keys.
struct CopyWeights {
  const float* from;
  const std::uint32_t* places;  // of the kept keys in the batch
  float* to;
  SLOTWISE_HD void operator()(std::uint32_t i) const { to[i] = from[places[i]]; }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_KEEP_MINE_H_
