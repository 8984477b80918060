// KeyBatch: uploads keys to device memory as a batch of one key a bag.
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_KEY_BATCH_H_
#define SLOTWISE_SERVER_ENGINE_KEY_BATCH_H_

#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/device_array.h"
#include "slotwise/batch.h"
#include "slotwise/status.h"

namespace slotwise {

class KeyBatch {
 public:
  // `device` outlives it.
  explicit KeyBatch(Device& device) : device_(device), keys_(device), device_offsets_(device) {}

  // Returns the keys as a batch, valid until the next call. Throws std::bad_alloc.
  BatchView Of(std::span<const Key> keys) {
    offsets_.resize(keys.size() + 1);
    std::iota(offsets_.begin(), offsets_.end(), 0U);
    Key* const there = keys_.Reserve(keys.size());
    std::uint32_t* const offsets = device_offsets_.Reserve(offsets_.size());
    device_.Upload(there, keys.data(), keys.size_bytes());
    device_.Upload(offsets, offsets_.data(), offsets_.size() * sizeof(std::uint32_t));
    return {{there, keys.size()}, {offsets, offsets_.size()}, {}};
  }

 private:
  Device& device_;
  std::vector<std::uint32_t> offsets_;
  DeviceArray<Key> keys_;
  DeviceArray<std::uint32_t> device_offsets_;
};

// Erases the batch's keys from the shard. `removed` is as for ErasableBatch::Erase.
inline Status EraseKeys(Shard& shard, const BatchView& batch, std::vector<Key>* removed = nullptr) {
  Result<ErasableBatch> prepared = shard.PrepareErase(batch);
  if (!prepared.ok()) return prepared.status();
  std::move(*prepared).Erase(removed);
  return {};
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_KEY_BATCH_H_
