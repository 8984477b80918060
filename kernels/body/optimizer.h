// Each of these optimizers updates one element. `w` points at the element's weight; the element's first state
// lies `dim` floats behind the weight, the next one `dim` floats behind that: kStates of them.
// docs/semantics.md has the formulas, and every expression here is written in the order that is agreed there.
//
// An optimizer whose kSharesState is true has one state a row, which lies elsewhere (rows.h). Before it
// updates the row's elements it sees that state and the sum of the row's squared gradients: SeeRow says
// whether the row may move, and shared_state() is the new state then.
//
// Rows are to stay finite: callers use an optimizer through FiniteSteps, which is below.
#ifndef SLOTWISE_KERNELS_BODY_OPTIMIZER_H_
#define SLOTWISE_KERNELS_BODY_OPTIMIZER_H_

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/body/portable.h"
#include "kernels/step_scalars.h"
#include "slotwise/table_options.h"

namespace slotwise::body {

// Returns false for infinity and NaN.
SLOTWISE_HD inline bool IsFinite(float x) { return fabsf(x) <= FLT_MAX; }

// Returns `condition ? one : other`, computed on bits. From `?:` GCC makes branches, where it knows how one
// of the two is used, or masked stores, and then the CPU's loop over elements takes several times as long.
SLOTWISE_HD inline float Choose(bool condition, float one, float other) {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(one) & mask) |
                              (std::bit_cast<std::uint32_t>(other) & ~mask));
}

struct Sgd {
  static constexpr bool kSharesState = false;
  static constexpr std::uint32_t kStates = 0;
  float learning_rate;

  SLOTWISE_HD void operator()(float* w, std::uint32_t /*dim*/, float g) const { *w -= learning_rate * g; }
};

// Polyak 1964. State: v, the velocity.
struct Momentum {
  static constexpr bool kSharesState = false;
  static constexpr std::uint32_t kStates = 1;
  float learning_rate;
  float momentum;

  SLOTWISE_HD void operator()(float* w, std::uint32_t dim, float g) const {
    float& v = w[dim];
    v = momentum * v - learning_rate * g;
    *w += v;
  }
};

// Nesterov 1983, in HugeCTR's form. State: a, the accumulated step.
struct Nesterov {
  static constexpr bool kSharesState = false;
  static constexpr std::uint32_t kStates = 1;
  float learning_rate;
  float momentum;

  SLOTWISE_HD void operator()(float* w, std::uint32_t dim, float g) const {
    float& a = w[dim];
    const float next = momentum * a - learning_rate * g;
    *w += -momentum * a + (1.0F + momentum) * next;
    a = next;
  }
};

// Duchi, Hazan, Singer 2011. State: s, the sum of squared gradients.
struct AdaGrad {
  static constexpr bool kSharesState = false;
  static constexpr std::uint32_t kStates = 1;
  float learning_rate;
  float epsilon;

  SLOTWISE_HD void operator()(float* w, std::uint32_t dim, float g) const {
    float& s = w[dim];
    s += g * g;
    *w -= learning_rate * g / (sqrtf(s) + epsilon);
  }
};

// AdaGrad with one s a row, the sum of the means of the row's squared gradients (FBGEMM).
struct RowWiseAdaGrad {
  static constexpr bool kSharesState = true;
  static constexpr std::uint32_t kStates = 0;
  float learning_rate;
  float epsilon;
  float s = 0;

  // Returns false if the row's new state would not be finite.
  SLOTWISE_HD bool SeeRow(float state, std::uint32_t dim, float squares) {
    s = state + squares / static_cast<float>(dim);
    return IsFinite(s);
  }
  SLOTWISE_HD float shared_state() const { return s; }
  SLOTWISE_HD void operator()(float* w, std::uint32_t /*dim*/, float g) const {
    *w -= learning_rate * g / (sqrtf(s) + epsilon);
  }
};

// Tieleman, Hinton 2012. State: v, the running mean of squared gradients.
struct RmsProp {
  static constexpr bool kSharesState = false;
  static constexpr std::uint32_t kStates = 1;
  float learning_rate;
  float beta;
  float epsilon;

  SLOTWISE_HD void operator()(float* w, std::uint32_t dim, float g) const {
    float& v = w[dim];
    v = beta * v + (1.0F - beta) * (g * g);
    *w -= learning_rate * g / (sqrtf(v) + epsilon);
  }
};

// Kingma, Ba 2015, lazy: only touched rows move. State: m, v. `rate` carries the step's bias corrections, and
// `keep` is 1 but for decoupled weight decay (Loshchilov, Hutter 2019).
struct Adam {
  static constexpr bool kSharesState = false;
  static constexpr std::uint32_t kStates = 2;
  float rate;
  float keep;
  float beta1;
  float beta2;
  float epsilon;

  SLOTWISE_HD void operator()(float* w, std::uint32_t dim, float g) const {
    float& m = w[dim];
    float& v = w[std::size_t{2} * dim];
    m = beta1 * m + (1.0F - beta1) * g;
    v = beta2 * v + (1.0F - beta2) * (g * g);
    *w = keep * *w - rate * m / (sqrtf(v) + epsilon);
  }
};

// FTRL-proximal, McMahan et al. 2013. State: z, n. The first update replaces the initial value.
struct Ftrl {
  static constexpr bool kSharesState = false;
  static constexpr std::uint32_t kStates = 2;
  float learning_rate;
  float lambda1;
  float lambda2;
  float beta;

  SLOTWISE_HD void operator()(float* w, std::uint32_t dim, float g) const {
    float& z = w[dim];
    float& n = w[std::size_t{2} * dim];
    const float next = n + g * g;
    const float sigma = (sqrtf(next) - sqrtf(n)) / learning_rate;
    z += g - sigma * *w;
    n = next;
    const float towards_zero = z > 0 ? lambda1 : -lambda1;
    const float moved = (towards_zero - z) / ((beta + sqrtf(next)) / learning_rate + lambda2);
    *w = Choose(fabsf(z) <= lambda1, 0.0F, moved);
  }
};

// Lets an optimizer update an element, unless its weight or a state would become infinite or NaN, or its
// weight would once it is rounded: then the element keeps its weight and its states.
//
// The CPU's loop over elements has to vectorise, so there is no loop over the states.
template <class Optimizer>
struct FiniteSteps {
  static constexpr std::uint32_t kStates = Optimizer::kStates;
  Optimizer optimizer;

  // The first state lies at `state`, the next one `dim` floats behind that. round(weight) returns the weight
  // that is stored (rounding.h).
  template <class Round>
  SLOTWISE_HD void operator()(float* w, float* state, std::size_t dim, float g, Round round) const {
    Step(w, state, dim, g, round, std::make_index_sequence<kStates>());
  }

 private:
  // Each S is one of the element's states.
  template <class Round, std::size_t... S>
  SLOTWISE_HD void Step(float* w, float* state, std::size_t dim, float g, Round round,
                        std::index_sequence<S...> /*states*/) const {
    const float before[] = {*w, state[S * dim]...};
    float after[] = {before[0], before[1 + S]...};
    optimizer(after, 1, g);
    const float stored = round(after[0]);
    const std::uint32_t finite =
        static_cast<std::uint32_t>(IsFinite(after[0])) & (static_cast<std::uint32_t>(IsFinite(stored)) & ... &
                                                          static_cast<std::uint32_t>(IsFinite(after[1 + S])));
    *w = Choose(finite != 0, stored, before[0]);
    ((state[S * dim] = Choose(finite != 0, after[1 + S], before[1 + S])), ...);
  }
};

// Returns the weight decay that is part of a row's gradient.
inline float CoupledDecay(const OptimizerOptions& options) {
  const bool decoupled = options.kind == OptimizerKind::kAdam && options.decoupled_decay;
  return decoupled ? 0.0F : options.weight_decay;
}

// Returns the optimizer, which keeps as many states as slotwise/table_options.h lists for its kind.
template <OptimizerKind kKind, class Optimizer>
constexpr Optimizer Of(Optimizer optimizer) {
  static_assert(Optimizer::kStates + (Optimizer::kSharesState ? 1 : 0) == StatesOf(kKind).size());
  static_assert(Optimizer::kSharesState == KeepsOneFloatARow(kKind));
  return optimizer;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"

// Calls use(optimizer) with the optimizer that `options` name and the numbers of the step. Each backend
// compiles a body once for each optimizer, and a batch chooses once.
template <class Use>
void WithOptimizer(const OptimizerOptions& options, const StepScalars& scalars, Use use) {
  using Kind = OptimizerKind;
  const OptimizerOptions& o = options;
  const float rate = scalars.learning_rate;
  switch (o.kind) {
    case Kind::kSgd:
      return use(Of<Kind::kSgd>(Sgd{rate}));
    case Kind::kMomentum:
      return use(Of<Kind::kMomentum>(Momentum{rate, o.momentum}));
    case Kind::kNesterov:
      return use(Of<Kind::kNesterov>(Nesterov{rate, o.momentum}));
    case Kind::kAdaGrad:
      return use(Of<Kind::kAdaGrad>(AdaGrad{rate, o.epsilon}));
    case Kind::kRowWiseAdaGrad:
      return use(Of<Kind::kRowWiseAdaGrad>(RowWiseAdaGrad{rate, o.epsilon}));
    case Kind::kRmsProp:
      return use(Of<Kind::kRmsProp>(RmsProp{rate, o.beta2, o.epsilon}));
    case Kind::kAdam:
      return use(Of<Kind::kAdam>(
          Adam{scalars.adam_rate, scalars.adam_keep, o.beta1, o.beta2, scalars.adam_epsilon}));
    case Kind::kFtrl:
      return use(Of<Kind::kFtrl>(Ftrl{rate, o.lambda1, o.lambda2, o.ftrl_beta}));
  }
}

#pragma GCC diagnostic pop

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_OPTIMIZER_H_
