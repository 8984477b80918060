#include "server/engine/round.h"

#include <algorithm>

#include "kernels/shard.h"

namespace slotwise {

std::uint64_t RoundBytes(std::uint64_t samples, std::uint64_t keys, std::uint64_t slots, std::uint64_t dim,
                         bool weighted) {
  const std::uint64_t bags = samples * slots;
  return keys * (sizeof(Key) + (weighted ? sizeof(float) : 0)) + (bags + 1) * sizeof(std::uint32_t) +
         bags * dim * sizeof(float);
}

std::uint64_t StepBytes(std::uint64_t samples, std::uint64_t keys, std::uint64_t slots, std::uint64_t dim,
                        bool weighted) {
  const std::uint64_t sums =
      (keys + Shard::kKeysAPartialSum - 1) / Shard::kKeysAPartialSum * dim * sizeof(float);
  return std::max(RoundBytes(samples, keys, slots, dim, weighted), sums);
}

}  // namespace slotwise
