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

SLOTWISE_HD constexpr PhiloxWords Philox4x32(PhiloxWords counter, std::uint32_t key0, std::uint32_t key1) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter.word[0];
    const std::uint64_t product1 = kMultiplier1 * counter.word[2];
    counter = {{static_cast<std::uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<std::uint32_t>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_PHILOX_H_
