// A device whose memory is not the host's and whose copies run late, as a GPU's do, on a machine without one.
//
// Its work is the CPU's. Copies are kept back until the device must have done them (a shard's next call, or Wait) and
// then done in their order, so whoever reuses host memory too early, or reads it without waiting, gets wrong bytes.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_TESTS_SUPPORT_APART_DEVICE_H_
#define SLOTWISE_TESTS_SUPPORT_APART_DEVICE_H_

#include <memory>

#include "kernels/shard.h"

namespace slotwise::test {

// `ordinal` is what it says of itself: 0 and up pretends to be a GPU.
std::unique_ptr<Device> MakeApartDevice(int ordinal = -1);

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_APART_DEVICE_H_
