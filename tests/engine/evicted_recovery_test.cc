// A server that starts again does not know which keys went before, and says so.
#include <gtest/gtest.h>

#include "tests/engine/restarted_server.h"

namespace slotwise::test {
namespace {

class EvictedRecovery : public RestartedServer {
 protected:
  EvictedRecovery() {
    options_.name = TableName("ads");
    options_.dim = 4;
    options_.optimizer.learning_rate = 1;
    options_.max_rows = 4;
    options_.eviction = {.score = ScoreKind::kStep, .at = 1.0F, .to = 0.5F};
  }

  static std::size_t Count(const EvictedPage& page) {
    std::size_t count = 0;
    for (const EvictedPage::OfRound& gone : page.rounds) count += gone.keys.size();
    return count;
  }

  TableOptions options_;
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
