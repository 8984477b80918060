#include "tests/support/mpi_cluster.h"

#include <stdexcept>
#include <utility>

#include "tests/support/spread_shards.h"

namespace slotwise::test {
namespace {

std::unique_ptr<Exchange> ExchangeOf(Device& device, Collective& collective, const ExchangeOptions& options) {
  // The watchdog sees one call here, because MPI and NCCL make communicators in calls of their own.
  const Watchdog::Scope scope(collective.watchdog(), "MakeExchange", 0);
  auto made = MakeExchange(device, device.WorkStream(), collective, options);
  if (!made.ok()) throw std::runtime_error("MakeExchange: " + made.status().message());
  return std::move(*made);
}

}  // namespace

MpiCluster::MpiCluster(Collective& collective, std::unique_ptr<Device> device, const ExchangeOptions& options)
    : collective_(collective),
      device_(std::move(device)),
      exchange_(ExchangeOf(*device_, collective, options)),
      travel_(*device_, collective, *exchange_) {}

std::vector<int> MpiCluster::RanksOf(std::vector<int> /*wanted*/) const { return {collective_.size()}; }

std::unique_ptr<TableShards> MpiCluster::MakeShards(const TableOptions& options, int /*ranks*/,
                                                    const BucketMap& owners) {
  return std::make_unique<SpreadShards>(*device_, collective_, *exchange_, travel_, options, owners);
}

}  // namespace slotwise::test
