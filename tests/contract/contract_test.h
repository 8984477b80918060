// The base of all contract tests: a fixture with one backend's device, and ranks of that kind.
//
// The suite checks the promises of kernels/shard.h and semantics.md on every backend that this machine has.
// Backends(), in backends.cc, lists the backends, each with a name and a function that makes its device.
// Under mpirun the ranks are its processes, each with its own device (over_ranks.h). A test whose tables may
// lie on any ranks makes them on cluster(); a test that inspects a shard, on device(). A file of the suite
// declares `class Lookup : public ContractTest {};`, then SLOTWISE_ON_EVERY_BACKEND(Lookup), and writes its
// tests with TEST_P.
#ifndef SLOTWISE_TESTS_CONTRACT_CONTRACT_TEST_H_
#define SLOTWISE_TESTS_CONTRACT_CONTRACT_TEST_H_

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/shard.h"
#include "tests/support/checked_table.h"
#include "tests/support/same_bytes.h"

namespace slotwise::test {

struct Backend {
  std::string name;
  std::function<std::unique_ptr<Device>()> make_device;
};

// Returns whether mpirun started this process. A test of one process then skips itself.
bool OverRanks();

// Returns every backend that can run here.
std::vector<Backend> Backends();

// Returns ranks with such devices; null if the backend cannot run on the present number of ranks.
std::shared_ptr<Cluster> ClusterOf(const Backend& backend);

inline std::ostream& operator<<(std::ostream& out, const Backend& backend) { return out << backend.name; }

class ContractTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (cluster_ == nullptr) GTEST_SKIP() << "not on this number of ranks";
  }

  Cluster& cluster() { return *cluster_; }
  Device& device() { return cluster_->device(); }
  // Makes a second device of the same kind.
  std::unique_ptr<Device> AnotherDevice() { return GetParam().make_device(); }

 private:
  std::shared_ptr<Cluster> cluster_ = ClusterOf(GetParam());
};

}  // namespace slotwise::test

#define SLOTWISE_ON_EVERY_BACKEND(Fixture)                                                             \
  INSTANTIATE_TEST_SUITE_P(OnEveryBackend, Fixture, ::testing::ValuesIn(::slotwise::test::Backends()), \
                           [](const auto& test) { return test.param.name; })

#endif  // SLOTWISE_TESTS_CONTRACT_CONTRACT_TEST_H_
