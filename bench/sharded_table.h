// ShardedTable: one table over all ranks. The engine's TableWork drives it, without requests: this rank's
// samples go in, and their pooled rows come out.
//
// A batch lies in device memory from the start, each rank's part on the rank's own device. From there each
// call does all that a round does: it all-gathers keys and offsets, uses the table, and sends bags to their
// ranks.
// Thread-safety: one thread at a time. Calls are collective. Throws std::runtime_error, std::bad_alloc.
#ifndef SLOTWISE_BENCH_SHARDED_TABLE_H_
#define SLOTWISE_BENCH_SHARDED_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/device_array.h"
#include "server/collective/exchange.h"
#include "server/engine/output_distributor.h"
#include "server/engine/table_work.h"
#include "server/engine/tables.h"
#include "slotwise/table_options.h"

namespace slotwise::bench {

class ShardedTable {
 public:
  // `exchange` uses the device's own stream, Device::WorkStream.
  ShardedTable(Device& device, Collective& collective, Exchange& exchange, const TableOptions& options,
               const DistributionOptions& travel);

  // Inserts keys in this order. `keys` are the same on every rank; each rank keeps its own.
  void Insert(std::span<const Key> keys);

  // Sets the batch of the calls below: `bags` bags of `hot` keys over all ranks, evenly shared in rank order.
  // `keys` are the whole batch's, the same on every rank. `gradients` is float[this rank's bags][dim], or
  // empty if no step follows.
  void SetBatch(std::span<const Key> keys, std::uint32_t bags, std::uint32_t hot,
                std::span<const float> gradients);
  std::uint32_t first_bag() const { return static_cast<std::uint32_t>(first_bag_); }
  std::uint32_t my_bags() const { return static_cast<std::uint32_t>(bags_.bags_of[me_]); }

  // Each call writes the pooled rows of this rank's bags to Pooled(). It may return before the device has
  // finished.
  void Lookup();                               // as EVAL does
  void TrainStep(const StepScalars& scalars);  // lookup as TRAIN does, then the gradients' optimizer step
  void Push(const StepScalars& scalars);       // the optimizer step alone
  std::vector<float> Pooled();                 // float[my_bags()][dim]

  // REQUIRES: SetBatch.
  OutputDistribution way() const { return work_.distributor().Choose(bags_); }

  void Wait() { device_.Wait(); }  // until the device has finished

  ShardUsage Usage() const { return table_.shard->Usage(); }
  // Makes room for so many keys that are counted before they get rows. REQUIRES: the table has candidates.
  void ReserveCandidates(std::uint64_t keys);
  // Returns the number of this rank's keys that are counted so.
  std::uint64_t candidates() const { return candidates_ ? candidates_->shard->Usage().rows : 0; }
  const DistributionCosts& costs() const { return work_.distributor().costs(); }
  DataType partials() const { return work_.distributor().partials(); }
  std::uint64_t RowsOfAllRanks();

 private:
  std::uint32_t dim() const { return table_.info.options.dim; }
  BatchView Gather();
  const float* GatherGradients();
  TableWork::Share ShareOf(const BatchView& batch);
  InsertedBatch& PrepareAndInsert(const BatchView& batch);
  void Update(InsertedBatch batch, const StepScalars& scalars);
  void Pool(FoundBatch& batch);
  // Returns the ranks' shares of an array with `a_bag` elements for each bag.
  std::vector<std::size_t> Shares(std::size_t a_bag) const;

  Device& device_;
  Collective& collective_;
  Exchange& exchange_;
  std::size_t me_;
  Table table_;
  std::optional<Table> candidates_;

  // The batch of all ranks. Every call gathers this rank's share with the shares of the others, and
  // overwrites the others' shares of the call before.
  DeviceArray<Key> keys_;
  DeviceArray<std::uint32_t> offsets_;
  DeviceArray<float> gradients_;
  DeviceArray<float> pooled_;
  TableWork work_;
  DistributionArrays arrays_;
  DistributedBags bags_;
  std::size_t first_bag_ = 0;
  std::uint32_t hot_ = 0;
};

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_SHARDED_TABLE_H_
