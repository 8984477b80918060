// An operation that the engine's files do not name is run by all ranks, journaled, and replayed.
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <memory>

#include "server/engine/operations/definition.h"
#include "tests/durability/sim_files.h"
#include "tests/engine/running_engine.h"
#include "tests/engine/set_steps.h"

namespace slotwise::test {
namespace {

constexpr std::array kAdded{TraitsOf<operations::SetSteps>()};
static_assert(PlainlyJournaledOperation<operations::SetSteps>);

class AnAddedOperation : public testing::Test {
 protected:
  AnAddedOperation() {
    durability_.mode = DurabilityMode::kSync;
    durability_.folder = "data";
    durability_.files = &files_;
    durability_.journal_reserve_bytes = 1 << 20;
  }

  // A start of a server, on what the one before has left.
  std::unique_ptr<RunningEngine> Start() {
    EngineOptions options;
    options.instance = ++instance_;
    options.more_operations = kAdded;
    auto started = std::make_unique<RunningEngine>(place_, MakeSoloCollective(), options, &durability_);
    EXPECT_TRUE(started->recovered().ok()) << started->recovered().status().message();
    return started;
  }
  static Status SetSteps(RunningEngine& ranks, TableId table, std::uint64_t steps) {
    auto answer = std::make_shared<std::promise<Status>>();
    ranks.engine().Submit(
        SetStepsRequest{.table = table, .steps = steps, .done = [answer](const Status& status) {
                          answer->set_value(status);
                        }});
    return answer->get_future().get();
  }

  SimFiles files_;
  DurabilityOptions durability_;
  const EnginePlace place_{MakeSoloCollective(), MakeCpuDevice(1)};
  std::uint64_t instance_ = 0;
};

TEST_F(AnAddedOperation, IsRunAndComesBackFromTheJournal) {
  TableOptions options;
  options.name = TableName("ads");
  options.dim = 4;
  TableId table{0};
  {
    const auto ranks = Start();
    table = ranks->Create(options);
    EXPECT_TRUE(SetSteps(*ranks, table, 77).ok());
    EXPECT_EQ(ranks->Summarize(table).steps, 77U);
    for (const TableId none : {TableId{0}, TableId{99}})
      EXPECT_EQ(SetSteps(*ranks, none, 1).code(), StatusCode::kNotFound);
  }
  EXPECT_EQ(Start()->Summarize(table).steps, 77U);
}

}  // namespace
}  // namespace slotwise::test
