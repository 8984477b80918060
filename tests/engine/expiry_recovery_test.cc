// Journals and checkpoints know when a table had which steps: a stop counts to a row's time to live.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/engine/restarted_server.h"

namespace slotwise::test {
namespace {

using Which = RemoveRequest::Which;

class ExpiryRecovery : public RestartedServer, public testing::WithParamInterface<bool> {
 protected:
  ExpiryRecovery() {
    if (GetParam()) durability_.mode = DurabilityMode::kNone;
    options_.name = TableName("ads");
    options_.dim = 4;
    options_.optimizer.learning_rate = 1;
    options_.ttl_seconds = 1600;  // swept every 100 s
  }

  void Stop() {
    // A journal has all; without one, a checkpoint has.
    if (GetParam()) {
      ASSERT_TRUE(ranks_->Save().ok());
    }
    ranks_.reset();
  }
  std::vector<Key> Keys() {
    std::vector<Key> keys = ranks_->ListKeys(table_);
    std::ranges::sort(keys);
    return keys;
  }
  // The server sweeps by itself too, before or after this sweep.
  void Pass(std::uint64_t seconds) {
    clock_.seconds += seconds;
    EXPECT_TRUE(ranks_->Remove(table_, Which::kExpired).ok());
  }

  TableOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Of, ExpiryRecovery, testing::Bool(),
                         [](const auto& with) { return with.param ? "ACheckpoint" : "AJournal"; });

TEST_P(ExpiryRecovery, AStopCountsToATimeToLive) {
  Start();
  table_ = ranks_->Create(options_);
  Pass(0);
  Push({1, 2});
  Pass(100);  // marks that the table has one step
  Push({2, 3});
  Pass(100);
  Stop();
  clock_.seconds += 1499;
  Start();
  Pass(0);
  EXPECT_EQ(Keys(), (std::vector<Key>{Key{1}, Key{2}, Key{3}}));
  Pass(1);
  EXPECT_EQ(Keys(), (std::vector<Key>{Key{2}, Key{3}})) << "1,600 s after the mark";
  Stop();
  clock_.seconds += 100;
  Start();  // a server sweeps when it starts
  while (!Keys().empty()) std::this_thread::yield();
  Stop();
  Start();
  EXPECT_TRUE(Keys().empty());
  Push({9});
  Pass(0);
  EXPECT_EQ(Keys(), (std::vector<Key>{Key{9}}));
}

// A sweep that was due before a crash comes after it.
TEST_P(ExpiryRecovery, SweepsByStepsGoOnWhereTheyWere) {
  options_.ttl_seconds = 0;
  options_.ttl_steps = 64;  // swept every 4 steps
  Start();
  table_ = ranks_->Create(options_);
  std::size_t most = 0;
  for (std::uint64_t step = 1; step <= 150; ++step) {
    Push({step, 1000});
    if (step % 7 == 0) {
      Stop();
      Start();
    }
    const std::uint64_t swept = step / 4 * 4;
    const std::uint64_t gone = swept < 64 ? 0 : swept - 64;
    ASSERT_EQ(Keys().size(), step - gone + 1) << step;
    most = std::max(most, Keys().size());
  }
  EXPECT_EQ(most, 64U + 3U + 1U);
}

}  // namespace
}  // namespace slotwise::test
