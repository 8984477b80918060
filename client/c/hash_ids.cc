// Hashes texts to keys.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>

#include "slotwise/slotwise.h"

void slotwise_hash_ids(const char* bytes, const std::uint64_t* ends, std::size_t count, std::uint64_t seed,
                       std::uint64_t* keys) {
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = XXH3_64bits_withSeed(bytes + begin, ends[i] - begin, seed);
    begin = ends[i];
  }
}
