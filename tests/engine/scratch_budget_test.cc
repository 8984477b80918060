// The least recently used tables free their scratch memory.
#include "server/engine/scratch_budget.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

namespace slotwise {
namespace {

constexpr TableId kA{1};
constexpr TableId kB{2};
constexpr TableId kC{3};

class ScratchBudgetTest : public testing::Test {
 protected:
  using Batch = ScratchBudget::Batch;
  using Freed = std::vector<TableId>;

  // Returns the tables that give memory back before the round.
  Freed Use(const std::vector<Batch>& round) {
    freed_.clear();
    budget_.Use(round);
    return freed_;
  }

  Freed freed_;
  ScratchBudget budget_{[this](TableId table) { freed_.push_back(table); }};
};

TEST_F(ScratchBudgetTest, LetsTablesKeepWhatOneRoundNeeds) {
  budget_.SetMost(100);
  EXPECT_EQ(Use({{kA, 40}, {kB, 60}}), Freed());
  EXPECT_EQ(budget_.kept(), 100U);
  EXPECT_EQ(Use({{kB, 30}}), Freed()) << "a smaller batch needs no more";
  EXPECT_EQ(budget_.kept(), 100U);
}

TEST_F(ScratchBudgetTest, HasThoseGiveBackThatWereUsedLongestAgo) {
  budget_.SetMost(100);
  Use({{kA, 40}});
  Use({{kB, 40}});
  Use({{kA, 40}});
  EXPECT_EQ(Use({{kC, 40}}), Freed{kB});
  EXPECT_EQ(budget_.kept(), 80U);
  EXPECT_EQ(Use({{kB, 90}}), (Freed{kA, kC})) << "as many as it takes, and no table that keeps nothing";
  EXPECT_EQ(budget_.kept(), 90U);
}

TEST_F(ScratchBudgetTest, LeavesTheRoundsOwnTablesWhatTheyNeed) {
  budget_.SetMost(100);
  Use({{kA, 90}});
  EXPECT_EQ(Use({{kA, 30}, {kB, 60}}), Freed{kA}) << "A kept more than it needs now";
  EXPECT_EQ(budget_.kept(), 90U);
  EXPECT_EQ(Use({{kA, 30}, {kB, 300}}), Freed()) << "a round may be larger than the bound";
  EXPECT_EQ(budget_.kept(), 330U);
  EXPECT_EQ(Use({{kC, 1}}), (Freed{kA, kB})) << "by the order of their use, and B alone is too much";
}

TEST_F(ScratchBudgetTest, ForgetsTablesThatGo) {
  budget_.SetMost(100);
  Use({{kA, 50}, {kB, 50}});
  freed_.clear();
  budget_.Forget(kA);
  EXPECT_EQ(freed_, Freed{kA}) << "something may be read of its shard for long";
  EXPECT_EQ(budget_.kept(), 50U);
  budget_.Forget(kA);
  EXPECT_EQ(freed_, Freed{kA});
  EXPECT_EQ(Use({{kC, 50}}), Freed());
  budget_.Forget(kB);
  budget_.Forget(kC);
  EXPECT_EQ(budget_.kept(), 0U);
  EXPECT_EQ(Use({{kA, 100}}), Freed());
}

TEST_F(ScratchBudgetTest, LetsTablesKeepAllWithoutABound) {
  EXPECT_EQ(Use({{kA, ~std::uint64_t{0}}}), Freed());
  EXPECT_EQ(Use({{kB, ~std::uint64_t{0}}}), Freed());
  budget_.Forget(kA);
  EXPECT_EQ(freed_, Freed());
}

}  // namespace
}  // namespace slotwise
