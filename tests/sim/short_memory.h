// ShortDevice: a device whose shards report in some rounds that there is no memory for a batch, or for the
// shard.
//
// Thread-safety: as the wrapped device, which outlives this.
#ifndef SLOTWISE_TESTS_SIM_SHORT_MEMORY_H_
#define SLOTWISE_TESTS_SIM_SHORT_MEMORY_H_

#include <functional>
#include <memory>

#include "kernels/shard.h"

namespace slotwise::sim {

// `is_short()` says whether the current round has no memory. `on_make` is called with the place of each shard
// that is requested.
std::unique_ptr<Device> MakeShortDevice(Device& device, std::function<bool()> is_short,
                                        std::function<void(const ShardPlace&)> on_make);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SHORT_MEMORY_H_
