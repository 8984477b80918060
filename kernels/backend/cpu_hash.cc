#include "kernels/backend/cpu_hash.h"

namespace slotwise {
namespace {

[[gnu::always_inline]] inline void HashEach(const body::PlaceHash& hash_of, const Key* keys, std::size_t n,
                                            std::uint64_t* hashes) {
  const body::PlaceHash hash = hash_of;  // a copy: the compiler knows that no store changes it
  for (std::size_t i = 0; i < n; ++i) hashes[i] = hash(Value(keys[i]));
}

#ifdef __x86_64__
// Half of the hash is rotations, which are one instruction each here, and three with AVX2.
[[gnu::target("avx512f,avx512vl")]] void HashWithAvx512(const body::PlaceHash& hash_of, const Key* keys,
                                                        std::size_t n, std::uint64_t* hashes) {
  HashEach(hash_of, keys, n, hashes);
}

bool HasAvx512() { return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0; }
#endif

}  // namespace

void HashKeys(const body::PlaceHash& hash_of, const Key* keys, std::size_t n, std::uint64_t* hashes) {
#ifdef __x86_64__
  static const bool has_avx512 = HasAvx512();
  if (has_avx512) return HashWithAvx512(hash_of, keys, n, hashes);
#endif
  HashEach(hash_of, keys, n, hashes);
}

}  // namespace slotwise
