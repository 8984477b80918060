// Philox4x32-10, a counter-based generator: four random words from a counter and a key, with no state in
// between.
//
// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11; constants as in
// Random123.
#ifndef SLOTWISE_KERNELS_BODY_PHILOX_H_
#define SLOTWISE_KERNELS_BODY_PHILOX_H_

#include <cstdint>

#include "kernels/body/portable.h"

namespace slotwise::body {

struct PhiloxWords {
  std::uint32_t word[4];
};

SLOTWISE_HD constexpr std::uint32_t HighOfProduct(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  return __umulhi(a, b);  // of a product of 64 bits, nvcc would compute all 128
#else
  return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32);
#endif
}

// Philox4x32-kRounds. The paper's ten rounds leave a margin; seven pass its tests too.
template <int kRounds = 10>
SLOTWISE_HD constexpr PhiloxWords Philox4x32(PhiloxWords counter, std::uint32_t key0, std::uint32_t key1) {
  constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint32_t first = counter.word[0];
    const std::uint32_t third = counter.word[2];
    counter = {{HighOfProduct(kMultiplier1, third) ^ counter.word[1] ^ key0, kMultiplier1 * third,
                HighOfProduct(kMultiplier0, first) ^ counter.word[3] ^ key1, kMultiplier0 * first}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_PHILOX_H_
