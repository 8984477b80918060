// DeviceBatch is a device's copy of a batch.
//
// Thread-safety: as its device's.
#ifndef SLOTWISE_TESTS_SUPPORT_DEVICE_BATCH_H_
#define SLOTWISE_TESTS_SUPPORT_DEVICE_BATCH_H_

#include <span>

#include "tests/support/batches.h"
#include "tests/support/device_array.h"

namespace slotwise::test {

struct DeviceBatch {
  DeviceBatch(Device& device, const Batch& batch)
      : keys(device, std::span(batch.keys)),
        offsets(device, std::span(batch.offsets)),
        weights(device, std::span(batch.weights)) {}

  BatchView View() { return {keys.span(), offsets.span(), weights.span()}; }

  DeviceArray<Key> keys;
  DeviceArray<std::uint32_t> offsets;
  DeviceArray<float> weights;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_DEVICE_BATCH_H_
