#include "server/engine/round.h"

namespace slotwise {

std::uint64_t RoundBytes(std::uint64_t samples, std::uint64_t keys, std::uint64_t slots, std::uint64_t dim,
                         bool weighted) {
  const std::uint64_t bags = samples * slots;
  return keys * (sizeof(Key) + (weighted ? sizeof(float) : 0)) + (bags + 1) * sizeof(std::uint32_t) +
         bags * dim * sizeof(float);
}

}  // namespace slotwise
