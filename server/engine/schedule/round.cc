#include "server/engine/schedule/round.h"

#include "slotwise/sizing.h"

namespace slotwise {

std::uint64_t RoundBytes(std::uint64_t samples, std::uint64_t keys, std::uint64_t slots, std::uint64_t dim,
                         bool weighted) {
  return sizing::RoundBytes(keys, samples * slots, dim, weighted);
}

std::uint64_t StepBytes(std::uint64_t samples, std::uint64_t keys, std::uint64_t slots, std::uint64_t dim,
                        bool weighted) {
  return sizing::StepBytes(keys, samples * slots, dim, weighted);
}

}  // namespace slotwise
