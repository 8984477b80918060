// MultiShard: the shards of one table, driven as the ranks of a server drive them, without the server.
//
// Every shard sees the whole batch; the table's bound is agreed over all of them; partial sums are added in
// rank order; each rank divides the samples it received, and no others. Every lookup is made by all bags'
// partial sums and by those that ranks own keys of; pushes take turns. Partial sums travel in the type that
// they are told to. It checks on the way what shard.h promises of a healthy shard: counts of new rows that
// hold, inputs left alone, no write outside the output, every output written.
// Thread-safety: one thread at a time. The devices outlive it.
#ifndef SLOTWISE_TESTS_SUPPORT_MULTI_SHARD_H_
#define SLOTWISE_TESTS_SUPPORT_MULTI_SHARD_H_

#include <memory>
#include <vector>

#include "tests/support/device_batch.h"
#include "tests/support/table_shards.h"

namespace slotwise::test {

class MultiShard final : public TableShards {
 public:
  // `owners` has a rank for each bucket, all below `ranks`. Shard r lives on devices[r mod devices.size()].
  // Rank 0 has `secret`, and the other ranks have others.
  MultiShard(std::vector<Device*> devices, const TableOptions& options, int ranks, const BucketMap& owners,
             DataType partials = DataType::kFloat32, const HashSecret& secret = kTestSecret);

  Result<std::vector<float>> Lookup(const Batch& batch, LookupMode mode) override;
  Status Push(const Batch& batch, const std::vector<float>& gradients) override;
  Status Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records) override;
  std::uint64_t Erase(const std::vector<std::uint64_t>& keys) override;
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
  // Each returns the ranks' batches.
  std::vector<FoundBatch> Find(const Batch& batch);
  Result<std::vector<InsertedBatch>> Insert(const Batch& batch, PrepareFor purpose);
  std::uint64_t AgreeOnRows(std::vector<NewBatch>& prepared);
  // T: what a partial sum is in memory.
  template <class T>
  std::vector<float> SumsOverRanks(const Batch& batch, std::vector<FoundBatch>& found);
  template <class T>
  std::vector<float> SumsOfBagsThatTravel(const Batch& batch, std::vector<FoundBatch>& found);
  // A checked lookup's sums.
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
  std::vector<std::unique_ptr<AllToAllPlan>> plans_;   // a rank's, of the batch in flight
  std::vector<std::unique_ptr<DeviceBatch>> batches_;  // a rank's copy of the batch in flight
  std::uint64_t step_ = 0;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_MULTI_SHARD_H_
