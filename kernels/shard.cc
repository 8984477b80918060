// Implements those parts of shard.h, shard_batch.h and step_scalars.h that run on the host alone.
#include "kernels/shard.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/body/hash.h"

namespace slotwise {

std::uint32_t BucketOf(Key key) { return body::Bucket(key); }

BucketMap EvenBucketMap(int ranks) {
  BucketMap map{};
  for (std::uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
    map[bucket] = static_cast<std::uint16_t>(bucket * static_cast<std::uint32_t>(ranks) / kBuckets);
  }
  return map;
}

void ThrowOldBatch() {
  throw std::logic_error("a shard's batch was used after it was spent, or after the next one was prepared");
}

float LearningRateOfStep(const OptimizerOptions& optimizer, std::uint64_t step) {
  const ScheduleOptions& schedule = optimizer.schedule;
  const auto t = static_cast<double>(step);
  const double rate = optimizer.learning_rate;
  if (step <= schedule.warmup_steps) {
    return static_cast<float>(rate * t / static_cast<double>(schedule.warmup_steps));
  }
  if (schedule.decay_steps == 0 || step <= schedule.decay_start) return optimizer.learning_rate;
  const auto decayed = static_cast<double>(std::min(step - schedule.decay_start, schedule.decay_steps));
  const double left = 1.0 - decayed / static_cast<double>(schedule.decay_steps);
  const double end = schedule.end_learning_rate;
  return static_cast<float>(end + (rate - end) * std::pow(left, static_cast<double>(schedule.decay_power)));
}

StepScalars ScalarsOfStep(const OptimizerOptions& optimizer, std::uint64_t step) {
  StepScalars scalars{.step = step, .learning_rate = LearningRateOfStep(optimizer, step)};
  if (optimizer.kind == OptimizerKind::kAdam) {
    const auto t = static_cast<double>(step);
    const auto rate = static_cast<double>(scalars.learning_rate);
    const double root = std::sqrt(1.0 - std::pow(static_cast<double>(optimizer.beta2), t));
    scalars.adam_rate =
        static_cast<float>(rate * root / (1.0 - std::pow(static_cast<double>(optimizer.beta1), t)));
    scalars.adam_epsilon = optimizer.corrected_epsilon
                               ? static_cast<float>(static_cast<double>(optimizer.epsilon) * root)
                               : optimizer.epsilon;
    if (optimizer.decoupled_decay)
      scalars.adam_keep = static_cast<float>(1.0 - rate * static_cast<double>(optimizer.weight_decay));
  }
  return scalars;
}

}  // namespace slotwise
