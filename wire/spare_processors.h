// Tells whether threads of this process may wait awake: not if other threads need the processors.
// Thread-safety: a free function.
#ifndef SLOTWISE_WIRE_SPARE_PROCESSORS_H_
#define SLOTWISE_WIRE_SPARE_PROCESSORS_H_

#include <sched.h>

namespace slotwise {

// A call on a GPU keeps four threads awake: two in its server, and two in its client.
inline constexpr int kProcessorsToWaitAwake = 4;

// Returns whether this process may run on that many processors. The first call decides.
inline bool HasSpareProcessors() {
  static const bool has = [] {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 &&
           CPU_COUNT(&allowed) >= kProcessorsToWaitAwake;
  }();
  return has;
}

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_SPARE_PROCESSORS_H_
