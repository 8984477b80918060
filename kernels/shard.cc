// The parts of shard.h that are plain arithmetic on the host.
#include "kernels/shard.h"

#include <cmath>

namespace slotwise {

BucketMap EvenBucketMap(int ranks) {
  BucketMap map{};
  for (std::uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
    map[bucket] = static_cast<std::uint16_t>(bucket * static_cast<std::uint32_t>(ranks) / kBuckets);
  }
  return map;
}

StepScalars ScalarsOfStep(const OptimizerOptions& optimizer, std::uint64_t step) {
  StepScalars scalars{optimizer.learning_rate, 0};
  if (optimizer.kind == OptimizerKind::kAdam) {
    const auto t = static_cast<double>(step);
    scalars.adam_rate =
        static_cast<float>(static_cast<double>(optimizer.learning_rate) *
                           std::sqrt(1.0 - std::pow(static_cast<double>(optimizer.beta2), t)) /
                           (1.0 - std::pow(static_cast<double>(optimizer.beta1), t)));
  }
  return scalars;
}

}  // namespace slotwise
