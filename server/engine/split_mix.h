// SplitMix mixes the bits of a word: SplitMix64's output function (Steele, Lea and Flood, OOPSLA 2014).
// Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_ENGINE_SPLIT_MIX_H_
#define SLOTWISE_SERVER_ENGINE_SPLIT_MIX_H_

#include <cstdint>

namespace slotwise {

constexpr std::uint64_t SplitMix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SPLIT_MIX_H_
