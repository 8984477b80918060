// A budget bounds the bytes in use, and a reservation returns its bytes once.
#include "server/engine/budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace slotwise {
namespace {

TEST(Budget, RefusesWhatDoesNotFitBesideTheRest) {
  Budget budget(100);
  const auto first = budget.Reserve(60);
  ASSERT_TRUE(first);
  EXPECT_FALSE(budget.Reserve(41));
  EXPECT_EQ(budget.used(), 60U) << "a refusal reserves nothing";
  const auto second = budget.Reserve(40);
  EXPECT_TRUE(second);
  EXPECT_EQ(budget.used(), 100U);
  EXPECT_TRUE(budget.Reserve(0));
}

TEST(Budget, HoldsAnythingAloneAndMoreBeyondTheLimitForWhoMayGoThere) {
  Budget budget(100);
  {
    const auto large = budget.Reserve(1'000);
    ASSERT_TRUE(large);
    EXPECT_FALSE(budget.Reserve(1));
    EXPECT_FALSE(budget.Reserve(51, 950));
    const auto more = budget.Reserve(50, 950);
    ASSERT_TRUE(more);
    EXPECT_EQ(budget.used(), 1'050U);
  }
  EXPECT_EQ(budget.used(), 0U);
}

TEST(Budget, RefusesBytesWhoseSumWouldOverflow) {
  Budget budget(100);
  const auto one = budget.Reserve(1);
  EXPECT_FALSE(budget.Reserve(~std::uint64_t{0}));
}

TEST(Reservation, EndsOnceHoweverItIsMovedAndSplit) {
  Budget budget(100);
  Reservation outer;
  {
    Reservation inner = *budget.Reserve(100);
    Reservation share = inner.Split(30);
    EXPECT_EQ(inner.bytes(), 70U);
    outer = std::move(share);
    EXPECT_EQ(budget.used(), 100U);
  }
  EXPECT_EQ(budget.used(), 30U);
  outer = *budget.Reserve(50);
  EXPECT_EQ(budget.used(), 50U) << "the old reservation ended";
  outer = Reservation();
  EXPECT_EQ(budget.used(), 0U);
}

TEST(Reservation, MayOutliveItsBudget) {
  Reservation kept;
  {
    Budget budget(10);
    kept = *budget.Reserve(5);
  }
  EXPECT_EQ(kept.bytes(), 5U);
}

TEST(Budget, CountsRightForManyThreads) {
  Budget budget(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        const auto reserved = budget.Reserve(3);
        EXPECT_LE(budget.used(), 8U);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.used(), 0U);
}

}  // namespace
}  // namespace slotwise
