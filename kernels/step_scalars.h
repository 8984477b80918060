// StepScalars: the numbers of one optimizer step that the optimizer's options alone do not give.
// Thread-safety: plain values and pure functions.
#ifndef SLOTWISE_KERNELS_STEP_SCALARS_H_
#define SLOTWISE_KERNELS_STEP_SCALARS_H_

#include <cstdint>

#include "slotwise/table_options.h"

namespace slotwise {

struct StepScalars {
  float learning_rate = 0;
  // Adam: lr · √(1 − β₂ᵗ) / (1 − β₁ᵗ), computed in double and rounded once.
  float adam_rate = 0;
  // Adam: ε, times √(1 − β₂ᵗ) if it is that of the corrected v; likewise rounded.
  float adam_epsilon = 0;
  // Adam: what a row's weights are multiplied by first: 1 − lr · weight_decay if that is decoupled, or 1.
  float adam_keep = 1;
};

// Returns the optimizer's learning rate at that step, by its schedule: computed in double, rounded once.
// REQUIRES: step >= 1.
float LearningRateOfStep(const OptimizerOptions& optimizer, std::uint64_t step);

// Returns the numbers of that step. REQUIRES: step >= 1, the table's count of steps with this one.
StepScalars ScalarsOfStep(const OptimizerOptions& optimizer, std::uint64_t step);

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_STEP_SCALARS_H_
