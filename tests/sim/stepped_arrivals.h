// Arrivals on a device that others write to in the middle of a copy: kernels/arrivals.inl on the CPU's
// backend, whose launches stop between their threads and call back.
//
// Thread-safety: one thread.
#ifndef SLOTWISE_TESTS_SIM_STEPPED_ARRIVALS_H_
#define SLOTWISE_TESTS_SIM_STEPPED_ARRIVALS_H_

#include <functional>
#include <memory>

#include "kernels/arrivals.h"

namespace slotwise::sim {

// `pause` is called before each thread of a launch, and between launches.
std::unique_ptr<Arrivals> MakeSteppedArrivals(std::function<void()> pause);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_STEPPED_ARRIVALS_H_
