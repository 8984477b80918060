// What every file of the contract suite begins with: a fixture that holds one backend's device.
//
// The suite says what kernels/shard.h and semantics.md promise, and runs on every backend that this machine has. A
// backend joins in Backends(), in backends.cc, with a name and a way to make its device.
// A file of the suite declares `class Lookup : public ContractTest {};`, then SLOTWISE_ON_EVERY_BACKEND(Lookup), and
// writes its tests with TEST_P.
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

// Every backend that can run here.
std::vector<Backend> Backends();

inline std::ostream& operator<<(std::ostream& out, const Backend& backend) { return out << backend.name; }

class ContractTest : public ::testing::TestWithParam<Backend> {
 protected:
  ContractTest() : device_(GetParam().make_device()) {}

  Device& device() { return *device_; }
  // A device of the same kind besides.
  std::unique_ptr<Device> AnotherDevice() { return GetParam().make_device(); }

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace slotwise::test

#define SLOTWISE_ON_EVERY_BACKEND(Fixture)                                                             \
  INSTANTIATE_TEST_SUITE_P(OnEveryBackend, Fixture, ::testing::ValuesIn(::slotwise::test::Backends()), \
                           [](const auto& test) { return test.param.name; })

#endif  // SLOTWISE_TESTS_CONTRACT_CONTRACT_TEST_H_
