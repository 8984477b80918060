// ShortDevice: a device whose shards say in some rounds that they have no memory for a batch, or for
// themselves.
//
// Thread-safety: as the device's that it wraps, which outlives it.
#ifndef SLOTWISE_TESTS_SIM_SHORT_MEMORY_H_
#define SLOTWISE_TESTS_SIM_SHORT_MEMORY_H_

#include <functional>
#include <memory>

#include "kernels/shard.h"

namespace slotwise::sim {

// `is_short()`: whether the round that goes on now is one without memory. `on_make` sees the place of each
// shard that is asked for.
std::unique_ptr<Device> MakeShortDevice(Device& device, std::function<bool()> is_short,
                                        std::function<void(const ShardPlace&)> on_make);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SHORT_MEMORY_H_
