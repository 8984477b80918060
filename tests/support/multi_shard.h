// MultiShard: the shards of one table, driven as a server's ranks drive them, but without a server.
//
// Every shard gets the whole batch. The shards agree on the table's bound, partial sums are added in rank
// order, and each rank divides the samples that it received. Every lookup is made twice: by the partial sums
// of all bags, and by those of owned bags; pushes take turns. Partial sums travel in the type `partials`.
// Each call also checks shard.h's promises of a shard: true counts of new rows, unchanged inputs, no write
// outside the output, and a whole output.
// Thread-safety: one thread at a time. REQUIRES: the devices outlive this.
#ifndef SLOTWISE_TESTS_SUPPORT_MULTI_SHARD_H_
#define SLOTWISE_TESTS_SUPPORT_MULTI_SHARD_H_

#include <memory>
#include <vector>

#include "tests/support/device_batch.h"
#include "tests/support/table_shards.h"

namespace slotwise::test {

class MultiShard final : public TableShards {
 public:
  // `owners` has a rank for each bucket, all below `ranks`. Shard r lies on devices[r mod devices.size()].
  // Rank 0 has `secret`; each other rank has another secret.
  MultiShard(std::vector<Device*> devices, const TableOptions& options, int ranks, const BucketMap& owners,
             DataType partials = DataType::kFloat32, const HashSecret& secret = kTestSecret);

  Result<std::vector<float>> Lookup(const Batch& batch, LookupMode mode) override;
  Status Push(const Batch& batch, const std::vector<float>& gradients) override;
  Status Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records) override;
  std::uint64_t Erase(const std::vector<std::uint64_t>& keys) override;
  Status Alter(const TableOptions& options) override;
  std::uint64_t step() const override { return step_; }
  DigestSums Digest() override;
  std::uint64_t rows() const override;
  std::vector<ExportedRow> Export() override;
  Shard& shard(int rank) override { return *shards_[rank]; }

  int ranks() const { return static_cast<int>(shards_.size()); }
  Device& device(int rank) { return *devices_[rank % devices_.size()]; }

 private:
  using OutputDistribution = std::vector<std::size_t> BagTraffic::*;

  void Upload(const Batch& batch);
  // Each function returns the ranks' batches.
  std::vector<FoundBatch> Find(const Batch& batch);
  Result<std::vector<InsertedBatch>> Insert(const Batch& batch, PrepareFor purpose);
  std::uint64_t AgreeOnRows(std::vector<NewBatch>& prepared);
  // T is the type of a partial sum in memory.
  template <class T>
  std::vector<float> SumsOverRanks(const Batch& batch, std::vector<FoundBatch>& found);
  template <class T>
  std::vector<float> SumsOfBagsThatTravel(const Batch& batch, std::vector<FoundBatch>& found);
  // Returns the sums of a lookup by both ways, which must agree.
  template <class T>
  std::vector<float> SumsBothWays(const Batch& batch, std::vector<FoundBatch>& found);
  void UpdateByGradientsThatTravel(const Batch& batch, std::vector<InsertedBatch>& inserted,
                                   const std::vector<float>& gradients, const StepScalars& scalars);
  std::vector<std::size_t> BagsOf(const Batch& batch) const;
  template <class T>
  std::vector<T> Arrived(const std::vector<std::vector<T>>& sent, int rank, OutputDistribution out,
                         OutputDistribution in);
  std::vector<float> DividedBagSlices(const Batch& batch, std::vector<float> values);
  void ExpectInputsUnchanged(const Batch& batch);

  TableOptions options_;
  DataType partials_;
  std::vector<Device*> devices_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::unique_ptr<AllToAllPlan>> plans_;   // one for each rank, for the batch in flight
  std::vector<std::unique_ptr<DeviceBatch>> batches_;  // each rank's copy of the batch in flight
  std::uint64_t step_ = 0;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_MULTI_SHARD_H_
