// SpreadShards: this process's shard of a table that is spread over the processes of mpirun.
//
// An operation works as in server/engine: every rank brings its share of the batch and exchanges bring the
// others', ranks agree before rows are added, and the OutputDistributor sends bags and gradients. Shares are
// even in some batches and uneven in others, where some ranks have none. Every lookup is made in both ways;
// pushes alternate between gathered and distributed gradients. Each shard is checked as by MultiShard. A
// failure on one rank becomes a failure on all at the next operation, so that they stay in step.
// Thread-safety: one thread at a time. All calls but step and shard are collective.
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
  // `owners` has a rank for each bucket. Throws std::runtime_error if the device cannot make the shard.
  // REQUIRES: the arguments outlive this.
  SpreadShards(Device& device, Collective& collective, Exchange& exchange, OutputDistributor& travel,
               const TableOptions& options, const BucketMap& owners);

  Result<std::vector<float>> Lookup(const Batch& batch, LookupMode mode) override;
  Status Push(const Batch& batch, const std::vector<float>& gradients) override;
  Status Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records) override;
  std::uint64_t Erase(const std::vector<std::uint64_t>& keys) override;
  Status Alter(const TableOptions& options) override;
  std::uint64_t step() const override { return step_; }
  DigestSums Digest() override;
  std::uint64_t rows() const override;
  std::vector<ExportedRow> Export() override;
  // Throws std::logic_error if the shard is in another process.
  Shard& shard(int rank) override;

 private:
  // [ranks] the number of elements that each rank brings.
  using Counts = std::vector<std::size_t>;

  std::size_t me() const { return static_cast<std::size_t>(Value(collective_.rank())); }
  std::size_t ranks() const { return static_cast<std::size_t>(collective_.size()); }

  Counts SharesOf(std::size_t bags);
  // Gathers the batch of all ranks in device memory.
  void Gather(const Batch& batch);
  // Returns OK if every rank's status is OK.
  Status Agree(const Status& mine);
  Result<InsertedBatch> Insert(const Batch& batch, PrepareFor purpose);
  // Returns the number of rows that the table would have.
  std::uint64_t AgreeOnRows(NewBatch& prepared);
  DistributedBags Bags(const Batch& batch) const;
  // Returns this rank's bags, divided by the combiner's divisor.
  std::vector<float> Pooled(const Batch& batch, FoundBatch& found, OutputDistribution way);
  void ExpectInputsUnchanged(const Batch& batch);

  // Returns the sum of each value over the ranks.
  template <std::size_t N>
  std::array<std::uint64_t, N> Sums(const std::array<std::uint64_t, N>& mine) const;
  // Fills an array: this rank brings its block, and the exchange brings the others'.
  template <class T>
  void Exchanged(const Counts& counts, DeviceArray<T>& array);
  // Returns all ranks' blocks of counts[rank] elements, in rank order, in host memory.
  template <class T>
  std::vector<T> Together(const std::vector<T>& mine, const Counts& counts);

  Device& device_;
  Collective& collective_;
  Exchange& exchange_;
  OutputDistributor& travel_;
  DistributionArrays arrays_;
  TableOptions options_;
  const BucketMap owners_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<DeviceBatch> batch_;  // the batch in flight
  Counts bags_of_;                      // the shares of that batch
  std::uint64_t step_ = 0;
  std::uint64_t turn_ = 0;  // the number of batches so far
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_SPREAD_SHARDS_H_
