// A Cluster is the ranks of a test's tables: any number of ranks in this process, on one device; or the ranks
// that mpirun started (mpi_cluster.h).
//
// Thread-safety: one thread at a time. A cluster outlives its tables.
#ifndef SLOTWISE_TESTS_SUPPORT_CLUSTER_H_
#define SLOTWISE_TESTS_SUPPORT_CLUSTER_H_

#include <memory>
#include <utility>
#include <vector>

#include "tests/support/multi_shard.h"

namespace slotwise::test {

class Cluster {
 public:
  virtual ~Cluster() = default;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Returns this process's device.
  virtual Device& device() = 0;

  // Returns the numbers in `wanted` that the cluster can run as ranks, or else the only number that it can.
  virtual std::vector<int> RanksOf(std::vector<int> wanted) const = 0;

  // REQUIRES: RanksOf({ranks}) is {ranks}; `owners` has a rank for each bucket, all below `ranks`.
  virtual std::unique_ptr<TableShards> MakeShards(const TableOptions& options, int ranks,
                                                  const BucketMap& owners) = 0;

 protected:
  Cluster() = default;
};

class OneProcess final : public Cluster {
 public:
  explicit OneProcess(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  Device& device() override { return *device_; }
  std::vector<int> RanksOf(std::vector<int> wanted) const override { return wanted; }
  std::unique_ptr<TableShards> MakeShards(const TableOptions& options, int ranks,
                                          const BucketMap& owners) override {
    return std::make_unique<MultiShard>(std::vector<Device*>{device_.get()}, options, ranks, owners);
  }

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_CLUSTER_H_
