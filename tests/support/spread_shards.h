// SpreadShards: this process's shard of a table whose other shards the other processes of mpirun hold.
//
// An operation is that of server/engine: every rank brings its share of the batch, exchanges bring the
// others', ranks agree before rows are added, bags and gradients travel by OutputDistributor. Shares are
// even, or uneven to the point that ranks have none, in turns. Every lookup is made both ways; pushes take
// turns between gathered gradients and travelling ones. On the way it checks what MultiShard checks of each
// shard. A failure that only one rank has seen becomes one on all of them at the next operation, so that all
// go on alike. Thread-safety: one thread at a time. Every call but step and shard is collective.
#ifndef SLOTWISE_TESTS_SUPPORT_SPREAD_SHARDS_H_
#define SLOTWISE_TESTS_SUPPORT_SPREAD_SHARDS_H_

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "server/collective/collective.h"
#include "server/collective/exchange.h"
#include "server/engine/output_distributor.h"
#include "tests/support/device_batch.h"
#include "tests/support/table_shards.h"

namespace slotwise::test {

class SpreadShards final : public TableShards {
 public:
  // All outlive it. `owners` has a rank for each bucket. Throws std::runtime_error if the device makes no
  // such shard.
  SpreadShards(Device& device, Collective& collective, Exchange& exchange, OutputDistributor& travel,
               const TableOptions& options, const BucketMap& owners);

  Result<std::vector<float>> Lookup(const Batch& batch, LookupMode mode) override;
  Status Push(const Batch& batch, const std::vector<float>& gradients) override;
  Status Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records) override;
  std::uint64_t Erase(const std::vector<std::uint64_t>& keys) override;
  std::uint64_t step() const override { return step_; }
  DigestSums Digest() override;
  std::uint64_t rows() const override;
  std::vector<ExportedRow> Export() override;
  // Throws std::logic_error if it is another process's.
  Shard& shard(int rank) override;

 private:
  // Of something that all ranks have, how many elements each rank brings.
  using Counts = std::vector<std::size_t>;

  std::size_t me() const { return static_cast<std::size_t>(Value(collective_.rank())); }
  std::size_t ranks() const { return static_cast<std::size_t>(collective_.size()); }

  Counts SharesOf(std::size_t bags);
  // The batch as it is when every rank has brought its bags, in device memory.
  void Gather(const Batch& batch);
  // OK if every rank's status is.
  Status Agree(const Status& mine);
  Result<InsertedBatch> Insert(const Batch& batch, PrepareFor purpose);
  // How many rows the table would have.
  std::uint64_t AgreeOnRows(NewBatch& prepared);
  DistributedBags Bags(const Batch& batch) const;
  // This rank's bags, divided as the combiner wants.
  std::vector<float> Pooled(const Batch& batch, FoundBatch& found, OutputDistribution way);
  void ExpectInputsUnchanged(const Batch& batch);

  // Σ over the ranks of each value.
  template <std::size_t N>
  std::array<std::uint64_t, N> Sums(const std::array<std::uint64_t, N>& mine) const;
  // An array of which this rank brings its block of `values`; the others come by the exchange.
  template <class T>
  void Exchanged(const Counts& counts, DeviceArray<T>& array);
  // All ranks' blocks of counts[rank] elements in rank order, in host memory.
  template <class T>
  std::vector<T> Together(const std::vector<T>& mine, const Counts& counts);

  Device& device_;
  Collective& collective_;
  Exchange& exchange_;
  OutputDistributor& travel_;
  DistributionArrays arrays_;
  const TableOptions options_;
  const BucketMap owners_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<DeviceBatch> batch_;  // the one in flight
  Counts bags_of_;                      // its shares
  std::uint64_t step_ = 0;
  std::uint64_t turn_ = 0;  // counts batches
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_SPREAD_SHARDS_H_
