// The ledger remembers which steps were applied, within bounds.
#include "server/durability/ledger.h"

#include <gtest/gtest.h>

namespace slotwise {
namespace {

TEST(Ledger, KnowsNothingOfAStepThatWasNotApplied) {
  const Ledger ledger;
  EXPECT_EQ(ledger.Find(1, 1), std::nullopt);
  EXPECT_FALSE(ledger.IsTooOld(1, 1));
}

TEST(Ledger, GivesTheSameAnswerForAnAppliedStep) {
  Ledger ledger;
  ledger.Record(1, 5, 17);
  EXPECT_EQ(ledger.Find(1, 5), 17);
  EXPECT_EQ(ledger.Find(1, 4), std::nullopt);
  EXPECT_EQ(ledger.Find(2, 5), std::nullopt);
}

TEST(Ledger, TakesNumbersInAnyOrderWithinTheWindow) {
  Ledger ledger;
  ledger.Record(1, Ledger::kWindow, 1);
  EXPECT_FALSE(ledger.IsTooOld(1, 1));
  ledger.Record(1, 1, 2);
  EXPECT_EQ(ledger.Find(1, 1), 2);
  EXPECT_TRUE(ledger.IsTooOld(1, 0));
}

TEST(Ledger, RefusesWhatItCanNoLongerTellFromAnAppliedStep) {
  Ledger ledger;
  for (std::uint64_t number = 0; number <= Ledger::kWindow; ++number) ledger.Record(7, number, number + 1);
  EXPECT_TRUE(ledger.IsTooOld(7, 0));
  EXPECT_EQ(ledger.Find(7, 0), std::nullopt);
  EXPECT_EQ(ledger.Find(7, 1), 2);  // the oldest step that is still known
  EXPECT_FALSE(ledger.IsTooOld(7, 1));
}

TEST(Ledger, TakesTheLargestNumbers) {
  Ledger ledger;
  ledger.Record(1, ~0ULL, 1);
  EXPECT_EQ(ledger.Find(1, ~0ULL), 1);
  EXPECT_TRUE(ledger.IsTooOld(1, 0));
}

TEST(Ledger, ForgetsTheSessionThatWasSilentLongest) {
  Ledger ledger;
  for (std::uint64_t session = 0; session < Ledger::kMaxSessions; ++session) ledger.Record(session, 1, 1);
  ledger.Record(0, 2, 2);                     // makes session 0 the newest again
  ledger.Record(Ledger::kMaxSessions, 1, 1);  // exceeds the bound by one session
  EXPECT_EQ(ledger.Find(0, 1), 1);
  EXPECT_EQ(ledger.Find(1, 1), std::nullopt);
  EXPECT_EQ(ledger.Find(2, 1), 1);
}

}  // namespace
}  // namespace slotwise
