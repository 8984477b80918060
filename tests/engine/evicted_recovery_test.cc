// A server that starts again does not know which keys went before, and says so.
#include <gtest/gtest.h>

#include <memory>

#include "tests/durability/sim_files.h"
#include "tests/engine/running_engine.h"

namespace slotwise::test {
namespace {

class EvictedRecovery : public testing::Test {
 protected:
  EvictedRecovery() {
    durability_.mode = DurabilityMode::kSync;
    durability_.folder = "data";
    durability_.files = &files_;
    durability_.journal_reserve_bytes = 1 << 20;
    options_.name = TableName("ads");
    options_.dim = 4;
    options_.optimizer.learning_rate = 1;
    options_.max_rows = 4;
    options_.eviction = {.score = ScoreKind::kStep, .at = 1.0F, .to = 0.5F};
  }

  void Start() {
    ranks_.reset();
    EngineOptions options;
    options.instance = ++instance_;
    ranks_ = std::make_unique<RunningEngine>(place_, MakeSoloCollective(), options, &durability_);
    EXPECT_TRUE(ranks_->recovered().ok()) << ranks_->recovered().status().message();
  }
  void Push(const std::vector<std::uint64_t>& keys) {
    ASSERT_TRUE(ranks_
                    ->Push(table_, {.session = 5, .number = ++number_}, UnitBags(keys),
                           std::vector<float>(keys.size() * 4, 1.0F))
                    .ok());
  }
  static std::size_t Count(const EvictedPage& page) {
    std::size_t count = 0;
    for (const EvictedPage::OfRound& gone : page.rounds) count += gone.keys.size();
    return count;
  }

  SimFiles files_;
  DurabilityOptions durability_;
  TableOptions options_;
  const EnginePlace place_{MakeSoloCollective(), MakeCpuDevice(1)};
  std::unique_ptr<RunningEngine> ranks_;
  TableId table_{0};
  std::uint64_t instance_ = 0, number_ = 0;
};

TEST_F(EvictedRecovery, AStartLeavesAGap) {
  Start();
  table_ = ranks_->Create(options_);
  Push({1, 2, 3, 4});
  Push({5});
  const EvictedPage before = ranks_->ListEvicted(table_, 0);
  EXPECT_EQ(Count(before), 3U);
  EXPECT_FALSE(before.gap);
  Start();
  const EvictedPage after = ranks_->ListEvicted(table_, 0);
  EXPECT_TRUE(after.gap);
  EXPECT_EQ(Count(after), 0U) << "the replay of the journal is not listed";
  EXPECT_GT(after.complete_after, before.rounds.back().round - 1);
  Push({6, 7, 8});
  const EvictedPage on = ranks_->ListEvicted(table_, after.through_round);
  EXPECT_FALSE(on.gap);
  EXPECT_EQ(Count(on), 2U);
}

TEST_F(EvictedRecovery, ALoadedCheckpointLeavesAGap) {
  Start();
  table_ = ranks_->Create(options_);
  Push({1, 2, 3, 4});
  const auto saved = ranks_->Save();
  ASSERT_TRUE(saved.ok());
  Push({5});
  const EvictedPage before = ranks_->ListEvicted(table_, 0);
  EXPECT_EQ(Count(before), 3U);
  ASSERT_TRUE(ranks_->Load(saved->id).ok());
  const EvictedPage after = ranks_->ListEvicted(table_, before.through_round);
  EXPECT_TRUE(after.gap);
  EXPECT_GT(after.complete_after, before.through_round);
  EXPECT_EQ(Count(after), 0U);
  Push({5});
  EXPECT_EQ(Count(ranks_->ListEvicted(table_, after.through_round)), 3U);
}

}  // namespace
}  // namespace slotwise::test
