// Hashes many keys at once, with the processor's vectors.
#ifndef SLOTWISE_KERNELS_BACKEND_CPU_HASH_H_
#define SLOTWISE_KERNELS_BACKEND_CPU_HASH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/body/siphash.h"
#include "slotwise/types.h"

namespace slotwise {

// Writes the hash of each key: hashes[i] = hash_of(keys[i]) for i in [0, n). Thread-safety: a free function.
void HashKeys(const body::PlaceHash& hash_of, const Key* keys, std::size_t n, std::uint64_t* hashes);

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CPU_HASH_H_
