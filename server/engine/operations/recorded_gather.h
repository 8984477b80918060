// RecordedGather: makes the batch of a round, in device memory, from the parts in its records.
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_GATHER_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_GATHER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/device_array.h"
#include "server/engine/key_batch.h"
#include "server/engine/operations/recorded_batches.h"
#include "server/engine/tables.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise {

class RecordedGather {
 public:
  // The arguments outlive it.
  RecordedGather(Device& device, Tables& tables)
      : device_(device),
        tables_(tables),
        key_batch_(device),
        device_keys_(device),
        device_offsets_(device),
        device_weights_(device),
        device_values_(device) {}

  struct Batch {
    BatchView view;
    const float* values = nullptr;
  };
  // Joins the parts of a share. A bag's values are the columns of a row. `pushed_to`: the table's options for
  // a push, whose parts come in part order, otherwise null. The result is valid until the next call.
  // DATA_LOSS: no server has written such arrays.
  Result<Batch> Gather(std::span<const RecordedBatches> of_ranks, std::size_t share,
                       const TableOptions* pushed_to, const RecordColumns& columns);
  // Makes a batch of keys alone, one a bag.
  BatchView GatherKeys(TableId table, std::span<const Key> keys);

 private:
  // Tells the scratch budget that the table's shard is about to work on a batch of `bytes` bytes.
  void UseScratch(TableId table, std::uint64_t bytes);

  Device& device_;
  Tables& tables_;
  KeyBatch key_batch_;
  std::vector<Key> keys_;
  std::vector<std::uint32_t> offsets_;
  std::vector<float> weights_, values_;
  DeviceArray<Key> device_keys_;
  DeviceArray<std::uint32_t> device_offsets_;
  DeviceArray<float> device_weights_, device_values_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_GATHER_H_
