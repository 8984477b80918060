// StepScalars has the numbers of one optimizer step that depend on more than the optimizer's options.
// Thread-safety: plain values and pure functions.
#ifndef SLOTWISE_KERNELS_STEP_SCALARS_H_
#define SLOTWISE_KERNELS_STEP_SCALARS_H_

#include <cstdint>

#include "slotwise/table_options.h"

namespace slotwise {

struct StepScalars {
  std::uint64_t step = 0;  // the table's, from 1
  float learning_rate = 0;
  // Adam: lr · √(1 − β₂ᵗ) / (1 − β₁ᵗ), computed in double and rounded once.
  float adam_rate = 0;
  // Adam: ε, times √(1 − β₂ᵗ) if corrected_epsilon is set; likewise rounded.
  float adam_epsilon = 0;
  // Adam: a row's weights are multiplied by this first: 1 − lr · weight_decay if that is decoupled, or 1.
  float adam_keep = 1;
};

// Returns the optimizer's learning rate at `step`, by its schedule: computed in double, rounded once.
// REQUIRES: step >= 1.
float LearningRateOfStep(const OptimizerOptions& optimizer, std::uint64_t step);

// Returns the scalars of `step`. REQUIRES: step >= 1, the table's count of steps, this one included.
StepScalars ScalarsOfStep(const OptimizerOptions& optimizer, std::uint64_t step);

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_STEP_SCALARS_H_
