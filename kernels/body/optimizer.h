// Optimizers, an element at a time. `w` points at the element's weight; its state lies `dim` floats behind, and
// `dim` behind that. Formulas: docs/semantics.md. Every expression is written in the order that is agreed there.
#ifndef SLOTWISE_KERNELS_BODY_OPTIMIZER_H_
#define SLOTWISE_KERNELS_BODY_OPTIMIZER_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/body/portable.h"

namespace slotwise::body {

struct Sgd {
  float learning_rate;

  SLOTWISE_HD void operator()(float* w, std::uint32_t /*dim*/, float g) const { *w -= learning_rate * g; }
};

// Duchi, Hazan, Singer 2011. State: s, the sum of squared gradients.
struct AdaGrad {
  float learning_rate;
  float epsilon;

  SLOTWISE_HD void operator()(float* w, std::uint32_t dim, float g) const {
    float& s = w[dim];
    s += g * g;
    *w -= learning_rate * g / (sqrtf(s) + epsilon);
  }
};

// Kingma, Ba 2015, lazy: only touched rows move. State: m, v. `rate` carries the step's bias corrections.
struct Adam {
  float rate;
  float beta1;
  float beta2;
  float epsilon;

  SLOTWISE_HD void operator()(float* w, std::uint32_t dim, float g) const {
    float& m = w[dim];
    float& v = w[std::size_t{2} * dim];
    m = beta1 * m + (1.0F - beta1) * g;
    v = beta2 * v + (1.0F - beta2) * (g * g);
    *w -= rate * m / (sqrtf(v) + epsilon);
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_OPTIMIZER_H_
