// This is the public hash of keys. The top bits of a key's hash say which of kBuckets buckets the key falls
// into, and so which rank owns the key.
//
// This hash is part of docs/semantics.md, and anybody can invert it. A key's place in its owner's hash table
// comes from a keyed hash instead (siphash.h).
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

// Returns the key whose Mix64 is `x`.
SLOTWISE_HD constexpr std::uint64_t InverseOfMix64(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0x9cb4b2f8129337dbULL;
  x ^= x >> 33;
  x *= 0x4f74430c22a54005ULL;
  x ^= x >> 33;
  return x;
}
static_assert(0xff51afd7ed558ccdULL * 0x4f74430c22a54005ULL == 1);
static_assert(0xc4ceb9fe1a85ec53ULL * 0x9cb4b2f8129337dbULL == 1);

// Returns a number that breaks ties between keys. Mix64 alone says who owns a key, so that ties would empty
// one rank after the other.
SLOTWISE_HD constexpr std::uint64_t TieOf(std::uint64_t key) { return Mix64(Mix64(key)); }

// Returns the key's bucket, in [0, kBuckets).
SLOTWISE_HD constexpr std::uint32_t Bucket(Key key) {
  return static_cast<std::uint32_t>(Mix64(Value(key)) >> 52);
}

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_HASH_H_
