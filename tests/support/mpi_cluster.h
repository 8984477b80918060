// MpiCluster is a test's ranks as the processes that mpirun started.
//
// Each process has a device and its own shard of every table. Keys, bags and gradients travel as in a server,
// by its Exchange and its OutputDistributor. The Collective gathers the values that a test compares in host
// memory, so every process sees all of them. All processes run the same test on the same batches.
// Thread-safety: one thread at a time. The constructor, the destructor and the calls of its tables are
// collective.
#ifndef SLOTWISE_TESTS_SUPPORT_MPI_CLUSTER_H_
#define SLOTWISE_TESTS_SUPPORT_MPI_CLUSTER_H_

#include <memory>
#include <vector>

#include "server/collective/collective.h"
#include "server/collective/exchange.h"
#include "server/engine/output_distributor.h"
#include "tests/support/cluster.h"

namespace slotwise::test {

class MpiCluster final : public Cluster {
 public:
  // Throws std::runtime_error if there is no exchange for these devices.
  MpiCluster(Collective& collective, std::unique_ptr<Device> device, const ExchangeOptions& options);

  Device& device() override { return *device_; }
  std::vector<int> RanksOf(std::vector<int> wanted) const override;
  std::unique_ptr<TableShards> MakeShards(const TableOptions& options, int ranks,
                                          const BucketMap& owners) override;

 private:
  Collective& collective_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Exchange> exchange_;
  OutputDistributor travel_;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_MPI_CLUSTER_H_
