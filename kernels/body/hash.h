// The one hash of keys: who owns a key, and where its search begins.
//
// The top bits choose the owner (kBuckets buckets), the bottom bits the place in the owner's table, so the
// keys of one rank still spread over all of its table. Bits from the 32nd on choose the step from cache line
// to cache line.
#ifndef SLOTWISE_KERNELS_BODY_HASH_H_
#define SLOTWISE_KERNELS_BODY_HASH_H_

#include <cstdint>

#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

// MurmurHash3's 64-bit finaliser (Appleby): a bijection, so unequal keys have unequal hashes.
SLOTWISE_HD constexpr std::uint64_t Mix64(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

// 0 .. kBuckets - 1.
SLOTWISE_HD constexpr std::uint32_t Bucket(Key key) {
  return static_cast<std::uint32_t>(Mix64(Value(key)) >> 52);
}

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_HASH_H_
