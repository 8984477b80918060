#include <tbb/global_control.h>

#include <stdexcept>

#include "server/collective/collective.h"
#include "tests/contract/contract_test.h"
#include "tests/contract/over_ranks.h"

namespace slotwise::test {

bool OverRanks() { return LaunchedByMpi(); }

std::vector<Backend> Backends() {
  if (OverRanks()) return BackendsOverRanks();
  // oneTBB would run no more threads than there are cores; races want more.
  static const tbb::global_control kManyThreads(tbb::global_control::max_allowed_parallelism, 8);
  std::vector<Backend> backends{
      {"CpuWith1Thread", [] { return MakeCpuDevice(1); }},
      {"CpuWith3Threads", [] { return MakeCpuDevice(3); }},
  };
  if (CudaDeviceCount() > 0) {
    backends.push_back({"Cuda", [] {
                          auto device = MakeCudaDevice(0);
                          if (!device.ok()) {
                            throw std::runtime_error(device.status().message());
                          }
                          return std::move(*device);
                        }});
  }
  return backends;
}

std::shared_ptr<Cluster> ClusterOf(const Backend& backend) {
  if (OverRanks()) return ClusterOverRanks(backend);
  return std::make_shared<OneProcess>(backend.make_device());
}

}  // namespace slotwise::test
