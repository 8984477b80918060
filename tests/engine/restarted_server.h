// The base of tests of a server of one rank that starts again on what its last life has left.
#ifndef SLOTWISE_TESTS_ENGINE_RESTARTED_SERVER_H_
#define SLOTWISE_TESTS_ENGINE_RESTARTED_SERVER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/durability/sim_files.h"
#include "tests/engine/running_engine.h"
#include "tests/engine/set_clock.h"

namespace slotwise::test {

class RestartedServer : public testing::Test {
 protected:
  RestartedServer() {
    durability_.mode = DurabilityMode::kSync;
    durability_.folder = "data";
    durability_.files = &files_;
    durability_.journal_reserve_bytes = 1 << 20;
  }

  // Ends the server, if there is one, and starts it again.
  void Start() {
    ranks_.reset();
    EngineOptions options;
    options.instance = ++instance_;
    ranks_ =
        std::make_unique<RunningEngine>(place_, MakeSoloCollective(), options, &durability_, nullptr, clock_);
    ASSERT_TRUE(ranks_->recovered().ok()) << ranks_->recovered().status().message();
  }
  // Pushes gradients of ones, in bags of one key each. The table's rows have 4 elements.
  void Push(const std::vector<std::uint64_t>& keys) {
    ASSERT_TRUE(ranks_
                    ->Push(table_, {.session = 5, .number = ++number_}, UnitBags(keys),
                           std::vector<float>(keys.size() * 4, 1.0F))
                    .ok());
  }

  SimFiles files_;
  DurabilityOptions durability_;
  SetClock clock_;
  const EnginePlace place_{MakeSoloCollective(), MakeCpuDevice(1)};
  std::unique_ptr<RunningEngine> ranks_;
  TableId table_{0};

 private:
  std::uint64_t instance_ = 0, number_ = 0;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_ENGINE_RESTARTED_SERVER_H_
