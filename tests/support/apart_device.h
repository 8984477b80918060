// A device whose memory is not the host's and whose copies run late, as a GPU's do, on a machine without one.
//
// Its work is the CPU's. What is asked of a stream is kept back until it must have been done (by a shard's next call that
// answers, for the device's own stream; by a Wait, or by another stream that comes after) and then done in its order. So whoever reuses memory
// too early, reads it without waiting, or forgets that one stream comes after another, gets wrong bytes.
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
