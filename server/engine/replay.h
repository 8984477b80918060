// Replay: applies rounds again that a journal has.
//
// A round's records, of all ranks that recorded it, are its whole batch. Each rank of the server that
// recovers applies that batch to its own shards, which keep the keys that are theirs. So nothing travels
// between ranks, and any number of ranks recovers what any number recorded. What was applied once fits:
// replay asks no limit but the memory that there is.
// Thread-safety: the engine's thread only. Throws as Shard does.
#ifndef SLOTWISE_SERVER_ENGINE_REPLAY_H_
#define SLOTWISE_SERVER_ENGINE_REPLAY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/device_array.h"
#include "server/engine/checkpoint_loader.h"
#include "server/engine/key_batch.h"
#include "server/engine/round_record.h"
#include "server/engine/table_maker.h"
#include "server/engine/tables.h"
#include "slotwise/status.h"

namespace slotwise {

class Replay {
 public:
  // The arguments outlive it.
  Replay(Device& device, Tables& tables, const TableMaker& maker, CheckpointLoader& loader);

  // Applies a round: its records of all ranks that recorded it, in rank order. DATA_LOSS: the records do not
  // follow the state, or do not fit together. RESOURCE_EXHAUSTED: no memory for the rows.
  Status Apply(std::span<const RoundRecord> records);

 private:
  // A batch of parts, in device memory.
  struct Batch {
    BatchView view;
    const float* values = nullptr;
  };
  Status ApplyPush(std::span<const RoundRecord> records);
  Status ApplyImport(std::span<const RoundRecord> records);
  Status ApplyErase(std::span<const RoundRecord> records);
  Status ApplyNewKeys(std::span<const RoundRecord> records);
  Status CreateTable(const RoundRecord& record);

  Result<Table*> Find(TableId table);
  // Gives the new keys of a prepared batch rows. RESOURCE_EXHAUSTED: more than a rank may hold, which depends
  // on how many ranks recover.
  static Status Insert(Table& table, const Result<NewRows>& prepared);
  // Puts the parts of a share one behind the other, whose values are `columns` numbers a bag, those from
  // `squares` on sums or means of squares. `pushed_to`: of a push, whose parts come in their order.
  Result<Batch> Gather(std::span<const RoundRecord> records, std::size_t share, const TableOptions* pushed_to,
                       std::uint32_t columns, std::uint32_t squares);
  Status LoadCheckpoint(const RoundRecord& record);
  // Says that the table's shard is about to work on a batch that counts as so many bytes.
  void UseScratch(TableId table, std::uint64_t bytes);

  Device& device_;
  Tables& tables_;
  const TableMaker& maker_;
  CheckpointLoader& loader_;
  KeyBatch new_keys_;
  std::vector<Key> keys_;
  std::vector<std::uint32_t> offsets_;
  std::vector<float> weights_, values_;
  DeviceArray<Key> device_keys_;
  DeviceArray<std::uint32_t> device_offsets_;
  DeviceArray<float> device_weights_, device_values_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_REPLAY_H_
