// What every file of the contract suite begins with: a fixture that holds one backend's device, and ranks of
// that kind.
//
// The suite says what kernels/shard.h and semantics.md promise, and runs on every backend that this machine
// has. A backend joins in Backends(), in backends.cc, with a name and a way to make its device. Under mpirun
// the ranks are its processes, each with a device of its own (over_ranks.h). A test whose tables may lie on
// any ranks makes them on cluster(); one that looks into a shard, on device(). A file of the suite declares
// `class Lookup : public ContractTest {};`, then SLOTWISE_ON_EVERY_BACKEND(Lookup), and writes its tests with
// TEST_P.
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

// Whether mpirun started this: then a test that is about one process skips itself.
bool OverRanks();

// Every backend that can run here.
std::vector<Backend> Backends();

// Ranks with such devices. Null if the backend cannot run on as many as there are.
std::shared_ptr<Cluster> ClusterOf(const Backend& backend);

inline std::ostream& operator<<(std::ostream& out, const Backend& backend) { return out << backend.name; }

class ContractTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (cluster_ == nullptr) GTEST_SKIP() << "not on this number of ranks";
  }

  Cluster& cluster() { return *cluster_; }
  Device& device() { return cluster_->device(); }
  // A device of the same kind besides.
  std::unique_ptr<Device> AnotherDevice() { return GetParam().make_device(); }

 private:
  std::shared_ptr<Cluster> cluster_ = ClusterOf(GetParam());
};

}  // namespace slotwise::test

#define SLOTWISE_ON_EVERY_BACKEND(Fixture)                                                             \
  INSTANTIATE_TEST_SUITE_P(OnEveryBackend, Fixture, ::testing::ValuesIn(::slotwise::test::Backends()), \
                           [](const auto& test) { return test.param.name; })

#endif  // SLOTWISE_TESTS_CONTRACT_CONTRACT_TEST_H_
