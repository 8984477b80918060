// From values that are known when the program runs to types that the compiler knows: each backend compiles a
// body once for each type, and a batch chooses once.
//
// Included by kernels' .inl and backend files alone. Thread-safety: free functions.
#ifndef SLOTWISE_KERNELS_DISPATCH_H_
#define SLOTWISE_KERNELS_DISPATCH_H_

#include <cstdint>

#include "kernels/body/optimizer.h"
#include "kernels/body/portable.h"
#include "kernels/shard.h"
#include "slotwise/data_type.h"
#include "slotwise/table_options.h"

namespace slotwise {

// Calls use(elements): `numbers` as a pointer to float, body::Float16 or body::BFloat16.
template <class Use>
void WithElements(ConstNumbers numbers, Use use) {
  switch (numbers.type) {
    case DataType::kFloat32:
      return use(static_cast<const float*>(numbers.data));
    case DataType::kFloat16:
      return use(static_cast<const body::Float16*>(numbers.data));
    case DataType::kBFloat16:
      return use(static_cast<const body::BFloat16*>(numbers.data));
  }
}

// Whether four neighbouring numbers can be loaded and stored at once, wherever in the array they begin at a
// multiple of four.
inline bool LiesByFours(ConstNumbers numbers) {
  return reinterpret_cast<std::uintptr_t>(numbers.data) % (4 * BytesOf(numbers.type)) == 0;
}

// The weight decay that is part of a row's gradient.
inline float CoupledDecay(const OptimizerOptions& options) {
  const bool decoupled = options.kind == OptimizerKind::kAdam && options.decoupled_decay;
  return decoupled ? 0.0F : options.weight_decay;
}

// Calls use(optimizer): the functor of body/optimizer.h that `options` name, with the numbers of the step.
template <class Use>
void WithOptimizer(const OptimizerOptions& options, const StepScalars& scalars, Use use) {
  const OptimizerOptions& o = options;
  const float rate = scalars.learning_rate;
  switch (o.kind) {
    case OptimizerKind::kSgd:
      return use(body::Sgd{rate});
    case OptimizerKind::kMomentum:
      return use(body::Momentum{rate, o.momentum});
    case OptimizerKind::kNesterov:
      return use(body::Nesterov{rate, o.momentum});
    case OptimizerKind::kAdaGrad:
      return use(body::AdaGrad{rate, o.epsilon});
    case OptimizerKind::kRowWiseAdaGrad:
      return use(body::RowWiseAdaGrad{rate, o.epsilon});
    case OptimizerKind::kRmsProp:
      return use(body::RmsProp{rate, o.beta2, o.epsilon});
    case OptimizerKind::kAdam:
      return use(body::Adam{scalars.adam_rate, scalars.adam_keep, o.beta1, o.beta2, scalars.adam_epsilon});
    case OptimizerKind::kFtrl:
      return use(body::Ftrl{rate, o.lambda1, o.lambda2, o.ftrl_beta});
  }
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_DISPATCH_H_
