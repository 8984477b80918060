// The ledger remembers which steps were applied, within bounds, and knows what it may have forgotten.
#include "server/durability/ledger.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "server/durability/bounds.h"

namespace slotwise {
namespace {

constexpr TableId kTable{1};
constexpr std::uint32_t kNextTable = 10;
constexpr std::array<std::uint32_t, 1> kBody{7};

Ledger::Sequence Of(std::uint64_t session, TableId table = kTable) { return {table, session}; }

// Records a step of one table.
void Record(Ledger& ledger, const Ledger::Sequence& sequence, std::uint64_t number, std::uint64_t epoch,
            std::uint64_t table_step, std::span<const std::uint32_t> bodies) {
  ledger.Record(sequence, number, epoch, std::array{Ledger::TableStep{sequence.table, table_step}}, bodies);
}

std::uint64_t StepOf(const Ledger& ledger, std::uint64_t session, std::uint64_t number) {
  const Ledger::Applied* const found = ledger.Find(Of(session), number);
  return found == nullptr ? 0 : found->first.step;
}

TEST(Ledger, KnowsNothingOfAStepThatWasNotApplied) {
  const Ledger ledger;
  EXPECT_EQ(ledger.Find(Of(1), 1), nullptr);
  EXPECT_FALSE(ledger.IsTooOld(Of(1), 1));
  EXPECT_FALSE(ledger.MayHaveForgotten(Of(1), 0));
}

TEST(Ledger, GivesTheSameAnswerForAnAppliedStep) {
  Ledger ledger;
  Record(ledger, Of(1), 5, 1, 17, kBody);
  EXPECT_EQ(StepOf(ledger, 1, 5), 17U);
  EXPECT_EQ(ledger.Find(Of(1), 4), nullptr);
  EXPECT_EQ(ledger.Find(Of(2), 5), nullptr);
  EXPECT_EQ(ledger.Find(Of(1, TableId{2}), 5), nullptr);
}

TEST(Ledger, KnowsTheNewestStepOfEachTablesSession) {
  Ledger ledger;
  EXPECT_FALSE(ledger.NewestOf(Of(1)));
  Record(ledger, Of(1), 5, 3, 17, kBody);
  Record(ledger, Of(1), 4, 2, 18, kBody);
  Record(ledger, Of(1, TableId{2}), 9, 2, 1, kBody);
  EXPECT_EQ(ledger.NewestOf(Of(1))->number, 5U);
  EXPECT_EQ(ledger.NewestOf(Of(1))->epoch, 3U);
  EXPECT_EQ(ledger.NewestOf(Of(1, TableId{2}))->number, 9U);
  EXPECT_FALSE(ledger.NewestOf(Of(2)));
}

TEST(Ledger, TakesNumbersInAnyOrderWithinTheWindow) {
  Ledger ledger;
  Record(ledger, Of(1), Ledger::kWindow, 1, 1, kBody);
  EXPECT_FALSE(ledger.IsTooOld(Of(1), 1));
  Record(ledger, Of(1), 1, 1, 2, kBody);
  Record(ledger, Of(1), 9, 1, 3, kBody);
  EXPECT_EQ(StepOf(ledger, 1, 1), 2U);
  EXPECT_EQ(StepOf(ledger, 1, 9), 3U);
  EXPECT_TRUE(ledger.IsTooOld(Of(1), 0));
}

TEST(Ledger, RefusesWhatItCanNoLongerTellFromAnAppliedStep) {
  Ledger ledger;
  for (std::uint64_t number = 0; number <= Ledger::kWindow; ++number) {
    Record(ledger, Of(7), number, 1, number + 1, kBody);
  }
  EXPECT_TRUE(ledger.IsTooOld(Of(7), 0));
  EXPECT_EQ(ledger.Find(Of(7), 0), nullptr);
  EXPECT_EQ(StepOf(ledger, 7, 1), 2U);  // the oldest step that is still known
  EXPECT_FALSE(ledger.IsTooOld(Of(7), 1));
}

TEST(Ledger, TakesTheLargestNumbers) {
  Ledger ledger;
  Record(ledger, Of(1), ~0ULL, 1, 1, kBody);
  EXPECT_EQ(StepOf(ledger, 1, ~0ULL), 1U);
  EXPECT_TRUE(ledger.IsTooOld(Of(1), 0));
}

TEST(Ledger, ForgetsTheSessionThatWasSilentLongest) {
  Ledger ledger({.max_sessions = 3});
  for (std::uint64_t session = 0; session < 3; ++session) Record(ledger, Of(session), 1, 1, 1, kBody);
  Record(ledger, Of(0), 2, 1, 2, kBody);  // makes session 0 the newest again
  EXPECT_FALSE(ledger.MayHaveForgotten(Of(1), 1));
  Record(ledger, Of(3), 1, 1, 1, kBody);  // exceeds the bound by one session
  EXPECT_EQ(StepOf(ledger, 0, 1), 1U);
  EXPECT_EQ(ledger.Find(Of(1), 1), nullptr);
  EXPECT_EQ(StepOf(ledger, 2, 1), 1U);
  EXPECT_EQ(ledger.sessions(), 3U);
}

TEST(Ledger, TakesNoSessionForNewThatItMayHaveForgotten) {
  Ledger ledger({.max_sessions = 2, .first_epoch = 40});
  EXPECT_EQ(ledger.epoch(), 40U);
  Record(ledger, Of(1), 1, 41, 1, kBody);
  Record(ledger, Of(1), 2, 40, 2, kBody);  // the session's epoch stays the latest
  Record(ledger, Of(2), 1, 40, 3, kBody);
  Record(ledger, Of(3), 1, 40, 4, kBody);  // forgets session 1
  EXPECT_TRUE(ledger.MayHaveForgotten(Of(1), 41));
  EXPECT_TRUE(ledger.MayHaveForgotten(Of(9), 0));  // no epoch shows nothing
  EXPECT_TRUE(ledger.MayHaveForgotten(Of(9), 41));
  EXPECT_FALSE(ledger.MayHaveForgotten(Of(9), 42));
  EXPECT_FALSE(ledger.MayHaveForgotten(Of(2), 0));  // a known session is known
  EXPECT_EQ(ledger.epoch(), 42U);                   // a session that is drawn now can show that it is new
  Record(ledger, Of(4), 1, 0, 5, kBody);            // forgets session 2, of an earlier epoch
  EXPECT_TRUE(ledger.MayHaveForgotten(Of(9), 41));
  EXPECT_EQ(ledger.epoch(), 42U);
}

// A server that starts again may have an earlier clock, from which it takes its first epoch.
TEST(Ledger, HasEpochsNoEarlierThanItsSessions) {
  Ledger ledger({.first_epoch = 7});
  Record(ledger, Of(1), 1, 40, 1, kBody);  // replayed
  EXPECT_EQ(ledger.epoch(), 40U);
  for (std::uint64_t session = 2; session < 10; ++session) Record(ledger, Of(session), 1, 40, 1, kBody);
  EXPECT_EQ(ledger.epoch(), 40U);
  Ledger loaded({.first_epoch = 8});
  ASSERT_TRUE(loaded.Load(ledger.Save(), kNextTable).ok());
  EXPECT_EQ(loaded.epoch(), 40U);
}

TEST(Ledger, HasAnEpochForEveryThousandSessions) {
  Ledger ledger({.max_sessions = 2 * Ledger::kSessionsAnEpoch});
  for (std::uint64_t session = 0; session < 2 * Ledger::kSessionsAnEpoch; ++session) {
    EXPECT_EQ(ledger.epoch(), 1 + session / Ledger::kSessionsAnEpoch);
    Record(ledger, Of(session), 1, ledger.epoch(), 1, kBody);
    Record(ledger, Of(session), 2, ledger.epoch(), 1, kBody);
  }
  // One session too many takes the oldest along, and leaves the epochs after it alone.
  Record(ledger, Of(~0ULL), 1, ledger.epoch(), 1, kBody);
  EXPECT_TRUE(ledger.MayHaveForgotten(Of(0), 1));
  EXPECT_FALSE(ledger.MayHaveForgotten(Of(1ULL << 40), 2));
}

TEST(Ledger, TellsBodiesApartPartByPart) {
  Ledger ledger;
  const std::array<std::uint32_t, 3> bodies{4, 5, 6};
  Record(ledger, Of(1), 1, 1, 1, kBody);
  Record(ledger, Of(1), 2, 1, 2, bodies);
  const Ledger::Applied& step = *ledger.Find(Of(1), 2);
  for (std::uint32_t part = 0; part < 3; ++part) {
    EXPECT_FALSE(ledger.HadOtherBody(Of(1), step, part, 3, bodies[part]));
    EXPECT_TRUE(ledger.HadOtherBody(Of(1), step, part, 3, 9));
  }
  EXPECT_FALSE(ledger.HadOtherBody(Of(1), step, 0, 1, 9));  // cut otherwise: it cannot be compared
  EXPECT_TRUE(ledger.HadOtherBody(Of(1), *ledger.Find(Of(1), 1), 0, 1, 8));
}

TEST(Ledger, KnowsTheBodiesOfASessionsNewestSteps) {
  Ledger ledger;
  std::vector<std::uint32_t> bodies(Ledger::kBodiesASession - 1);
  std::iota(bodies.begin(), bodies.end(), 0U);
  Record(ledger, Of(1), 1, 1, 1, kBody);
  Record(ledger, Of(1), 2, 1, 2, bodies);
  EXPECT_TRUE(ledger.HadOtherBody(Of(1), *ledger.Find(Of(1), 1), 0, 1, 8));
  Record(ledger, Of(1), 3, 1, 3, kBody);
  EXPECT_FALSE(ledger.HadOtherBody(Of(1), *ledger.Find(Of(1), 1), 0, 1, 8));  // not known any more
  const auto parts = static_cast<std::uint32_t>(bodies.size());
  EXPECT_TRUE(ledger.HadOtherBody(Of(1), *ledger.Find(Of(1), 2), parts - 1, parts, 1));
  EXPECT_FALSE(ledger.HadOtherBody(Of(1), *ledger.Find(Of(1), 2), parts - 1, parts, parts - 1));
  EXPECT_TRUE(ledger.HadOtherBody(Of(1), *ledger.Find(Of(1), 3), 0, 1, 8));
}

TEST(Ledger, StaysWithinItsBytes) {
  constexpr std::uint64_t kMost = 2 << 20;
  Ledger ledger({.max_bytes = kMost});
  for (std::uint64_t session = 0; session < 10; ++session) {
    for (std::uint64_t number = 1; number <= Ledger::kWindow; ++number) {
      Record(ledger, Of(session), number, 1, number, kBody);
      ASSERT_LE(ledger.bytes(), kMost);
    }
    EXPECT_EQ(StepOf(ledger, session, 1), 1U);  // the session that records is never the one forgotten
  }
  EXPECT_GT(ledger.sessions(), 3U);
  EXPECT_LT(ledger.sessions(), 10U);
  EXPECT_TRUE(ledger.MayHaveForgotten(Of(0), 1));
}

TEST(Ledger, ForgetsATableThatWasDropped) {
  Ledger ledger;
  const std::uint64_t empty = ledger.bytes();
  for (const TableId table : {TableId{1}, TableId{2}, TableId{3}}) {
    Record(ledger, Of(0, table), 1, 1, 1, kBody);
    Record(ledger, Of(~0ULL, table), 1, 1, 1, kBody);
  }
  ledger.ForgetTable(TableId{2});
  EXPECT_NE(ledger.Find(Of(~0ULL, TableId{1}), 1), nullptr);
  EXPECT_EQ(ledger.Find(Of(0, TableId{2}), 1), nullptr);
  EXPECT_EQ(ledger.Find(Of(~0ULL, TableId{2}), 1), nullptr);
  EXPECT_NE(ledger.Find(Of(0, TableId{3}), 1), nullptr);
  EXPECT_FALSE(ledger.MayHaveForgotten(Of(0, TableId{4}), 1));  // no step could be applied again
  ledger.ForgetTable(TableId{1});
  ledger.ForgetTable(TableId{3});
  EXPECT_EQ(ledger.bytes(), empty);
  EXPECT_EQ(ledger.sessions(), 0U);
}

TEST(Ledger, RecallsTheStepsOfATableAsItsOldest) {
  constexpr TableId kOther{2};
  Ledger saved;
  Record(saved, Of(1), 5, 3, 17, kBody);
  Record(saved, Of(2), 6, 4, 18, kBody);
  Record(saved, Of(3, kOther), 7, 4, 1, kBody);
  Ledger ledger({.max_sessions = 4});
  Record(ledger, Of(9), 1, 1, 1, kBody);
  ledger.ForgetTable(kTable);
  Record(ledger, Of(8, kOther), 1, 1, 1, kBody);
  const std::uint64_t before = ledger.bytes();
  ledger.RecallTable(saved, kTable);
  EXPECT_EQ(StepOf(ledger, 1, 5), 17U);
  EXPECT_EQ(StepOf(ledger, 2, 6), 18U);
  EXPECT_TRUE(ledger.HadOtherBody(Of(1), *ledger.Find(Of(1), 5), 0, 1, 8));
  EXPECT_EQ(ledger.NewestOf(Of(2))->epoch, 4U);
  EXPECT_EQ(ledger.Find(Of(3, kOther), 7), nullptr);
  EXPECT_EQ(ledger.epoch(), 4U);
  EXPECT_GT(ledger.bytes(), before);
  Ledger again({.max_sessions = 4});
  ASSERT_TRUE(again.Load(ledger.Save(), kNextTable).ok());
  EXPECT_EQ(again.bytes(), ledger.bytes());

  Record(ledger, Of(7, kOther), 1, 4, 2, kBody);
  Record(ledger, Of(6, kOther), 1, 5, 3, kBody);
  EXPECT_EQ(StepOf(ledger, 1, 5), 0U) << "it was recorded longest ago";
  EXPECT_EQ(StepOf(ledger, 2, 6), 18U);
  EXPECT_TRUE(ledger.MayHaveForgotten(Of(1), 3));
}

TEST(Ledger, RecallsStepsOfASessionThatItKnows) {
  Ledger saved;
  for (const std::uint64_t number : {5U, 6U, 7U}) Record(saved, Of(1), number, 3, 10 + number, kBody);
  Record(saved, Of(1), 5 + Ledger::kWindow, 3, 99, kBody);  // so 5 is no longer known
  Ledger ledger;
  Record(ledger, Of(1), 6, 2, 50, kBody);
  Record(ledger, Of(2), 1, 2, 1, kBody);
  ledger.RecallTable(saved, kTable);
  EXPECT_EQ(StepOf(ledger, 1, 6), 50U) << "what it knows stays";
  EXPECT_EQ(StepOf(ledger, 1, 7), 17U);
  EXPECT_EQ(StepOf(ledger, 1, 5 + Ledger::kWindow), 99U);
  EXPECT_FALSE(ledger.HadOtherBody(Of(1), *ledger.Find(Of(1), 7), 0, 1, 8)) << "no body is known";
  EXPECT_TRUE(ledger.HadOtherBody(Of(1), *ledger.Find(Of(1), 6), 0, 1, 8));
  EXPECT_EQ(ledger.NewestOf(Of(1))->epoch, 3U);
  Ledger again;
  ASSERT_TRUE(again.Load(ledger.Save(), kNextTable).ok());
  EXPECT_EQ(again.bytes(), ledger.bytes());
  EXPECT_EQ(StepOf(again, 1, 7), 17U);

  Ledger forgot({.max_sessions = 1});
  Record(forgot, Of(3), 1, 7, 1, kBody);
  Record(forgot, Of(4), 1, 8, 2, kBody);
  ledger.RecallTable(forgot, kTable);
  EXPECT_TRUE(ledger.MayHaveForgotten(Of(3), 7)) << "as the saved one has";
}

TEST(Ledger, KnowsWhatAStepMadeOfEachOfItsTables) {
  Ledger ledger({.max_bytes = 1 << 20});
  const Ledger::Sequence several{TableId{0}, 1};
  const std::array<Ledger::TableStep, 3> tables{{{TableId{4}, 7}, {TableId{2}, 1}, {TableId{9}, 5}}};
  const std::array<std::uint32_t, 6> bodies{1, 2, 3, 4, 5, 6};
  ledger.Record(several, 1, 1, tables, bodies);
  EXPECT_EQ(ledger.Find(Of(1, TableId{4}), 1), nullptr) << "steps of one table have numbers of their own";
  const Ledger::Applied& step = *ledger.Find(several, 1);
  ASSERT_EQ(step.tables(), 3U);
  for (std::uint32_t place = 0; place < 3; ++place) {
    EXPECT_EQ(step.At(place).table, tables[place].table);
    EXPECT_EQ(step.At(place).step, tables[place].step);
    EXPECT_FALSE(ledger.HadOtherBody(several, step, 2 * place + 1, 6, bodies[2 * place + 1]));
    EXPECT_TRUE(ledger.HadOtherBody(several, step, 2 * place + 1, 6, bodies[2 * place]));
  }
  const std::uint64_t bytes = ledger.bytes();
  Record(ledger, Of(2), 1, 1, 1, kBody);
  const std::uint64_t of_one = ledger.bytes() - bytes;
  EXPECT_EQ(bytes - of_one, 2 * sizeof(Ledger::TableStep) + 5 * sizeof(std::uint32_t));
  for (std::uint64_t number = 2; number <= 3 * Ledger::kWindow; ++number) {
    ledger.Record(several, number, 1, tables, std::span(bodies).first(3));
  }
  EXPECT_LE(ledger.bytes(), std::uint64_t{1} << 20)
      << "numbers that leave the window take their tables along";
}

// Records steps of several sessions and tables, with other epochs, so that some sessions are forgotten.
Ledger Busy(const LedgerLimits& limits) {
  Ledger ledger(limits);
  std::uint64_t random = 17;
  const auto draw = [&](std::uint64_t below) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    return (random >> 33) % below;
  };
  std::vector<std::uint64_t> next(40, 1);
  for (int i = 0; i < 900; ++i) {
    const std::uint64_t session = draw(next.size());
    const Ledger::Sequence sequence = Of(session, TableId{static_cast<std::uint32_t>(session % 3)});
    const std::uint64_t number = next[session] += 1 + draw(3);
    const std::vector<std::uint32_t> bodies(1 + draw(4), static_cast<std::uint32_t>(number));
    std::vector<Ledger::TableStep> tables(1 + draw(3));
    for (Ledger::TableStep& table : tables)
      table = {TableId{1 + static_cast<std::uint32_t>(draw(8))}, draw(1000)};
    ledger.Record(sequence, number, 1 + draw(2), tables, bodies);
  }
  return ledger;
}

TEST(Ledger, KnowsWhatItSaved) {
  const LedgerLimits limits{.max_sessions = 30};
  const Ledger saved = Busy(limits);
  const std::vector<std::byte> bytes = saved.Save();
  Ledger loaded(limits);
  ASSERT_TRUE(loaded.Load(bytes, kNextTable).ok());
  EXPECT_EQ(loaded.sessions(), saved.sessions());
  EXPECT_EQ(loaded.bytes(), saved.bytes());
  EXPECT_EQ(loaded.Save(), bytes) << "ages, steps, bodies and counts are the same";
  EXPECT_EQ(loaded.MayHaveForgotten(Of(1000), 1), saved.MayHaveForgotten(Of(1000), 1));
  // The same steps have the same ends from here on.
  Ledger copy = Busy(limits);
  for (std::uint64_t session = 50; session < 70; ++session) {
    Record(copy, Of(session), 1, 1, 5, kBody);
    Record(loaded, Of(session), 1, 1, 5, kBody);
  }
  EXPECT_EQ(loaded.Save(), copy.Save()) << "the same sessions are forgotten";
}

TEST(Ledger, HasNoEarlierEpochThanTheOneItLoads) {
  Ledger late({.first_epoch = 50});
  Record(late, Of(1), 1, 50, 1, kBody);
  Ledger loaded({.first_epoch = 7});
  ASSERT_TRUE(loaded.Load(late.Save(), kNextTable).ok());
  EXPECT_EQ(loaded.epoch(), 50U);
}

TEST(Ledger, KeepsItsLimitsWhenItLoads) {
  Ledger loaded({.max_sessions = 3});
  ASSERT_TRUE(loaded.Load(Busy({}).Save(), kNextTable).ok());
  EXPECT_EQ(loaded.sessions(), 3U);
  EXPECT_TRUE(loaded.MayHaveForgotten(Of(1000), 1));
}

TEST(Ledger, RefusesBytesThatAreCutOrOfAnotherVersion) {
  Ledger small;
  Record(small, Of(1), 1, 1, 5, kBody);
  Record(small, Of(1), 3, 1, 6, kBody);
  std::vector<std::byte> bytes = small.Save();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    Ledger loaded;
    EXPECT_EQ(loaded.Load(std::span(bytes).first(size), kNextTable).code(), StatusCode::kDataLoss) << size;
  }
  bytes[0] = std::byte{2};
  Ledger loaded;
  EXPECT_EQ(loaded.Load(bytes, kNextTable).code(), StatusCode::kDataLoss);
}

// Of a ledger of one session with two steps of two tables each: where its numbers lie (ledger_bytes.cc).
enum Place : std::size_t {
  kAtBegun = 1,
  kAtForgotten,
  kAtEpoch,
  kAtSessions,
  kAtTable,
  kAtSession,
  kAtSessionEpoch,
  kAtBodiesBefore,
  kAtSteps,
  kAtBodies,
  kAtNumber,
  kAtFirstBody,
  kAtParts,
  kAtTables,
  kAtFirstTable,
  kAtFirstTableStep,
  kAtSecondTable,
  kAtSecondTableStep,
  kAtSecondNumber,
  kAtFirstOfBodies = kAtSecondNumber + 8,
};

TEST(Ledger, RefusesNumbersThatNoServerWrites) {
  Ledger small;
  const std::array<Ledger::TableStep, 2> tables{{{TableId{4}, 7}, {TableId{9}, 5}}};
  const std::array<std::uint32_t, 2> bodies{11, 12};
  small.Record({TableId{0}, 1}, 10, 1, tables, bodies);
  small.Record({TableId{0}, 1}, 13, 1, tables, bodies);
  const std::vector<std::byte> bytes = small.Save();
  const auto load = [&](std::size_t place, std::uint64_t number, std::uint32_t next_table = kNextTable) {
    std::vector<std::byte> other = bytes;
    std::memcpy(&other[place * sizeof(number)], &number, sizeof(number));
    Ledger loaded;
    return loaded.Load(other, next_table).code();
  };
  ASSERT_EQ(bytes.size(), (kAtFirstOfBodies + 4) * sizeof(std::uint64_t))
      << "the format is not what this test knows";
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  constexpr auto kDataLoss = StatusCode::kDataLoss;
  // Nothing that counts on may wrap around.
  for (const std::size_t place : {kAtBegun, kAtForgotten, kAtEpoch, kAtSessionEpoch}) {
    EXPECT_EQ(load(place, kMaxEpoch), StatusCode::kOk) << place;
    EXPECT_EQ(load(place, kMaxEpoch + 1), kDataLoss) << place;
    EXPECT_EQ(load(place, kHuge), kDataLoss) << place;
  }
  for (const std::size_t place : {kAtBodiesBefore, kAtFirstTableStep, kAtSecondTableStep})
    EXPECT_EQ(load(place, kHuge), kDataLoss) << place;
  EXPECT_EQ(load(kAtFirstTableStep, kMaxSteps), StatusCode::kOk);
  EXPECT_EQ(load(kAtFirstTableStep, kMaxSteps + 1), kDataLoss);
  // A table's number has 32 bits, and is of a table that there was.
  for (const std::size_t place : {kAtTable, kAtFirstTable, kAtSecondTable}) {
    for (const std::uint64_t table : {std::uint64_t{kNextTable}, std::uint64_t{0x1'0000'0004}, kHuge})
      EXPECT_EQ(load(place, table), kDataLoss) << place << " is " << table;
  }
  EXPECT_EQ(load(kAtFirstTable, 0), kDataLoss);
  EXPECT_EQ(load(kAtTable, 4, 10), StatusCode::kOk);
  EXPECT_EQ(load(kAtTable, 4, 9), kDataLoss) << "table 9 is still to come";
  // Counts fit what comes, and what a session keeps.
  for (const std::size_t place :
       {kAtSessions, kAtSteps, kAtBodies, kAtTables, kAtParts, kAtFirstBody, kAtFirstOfBodies})
    EXPECT_EQ(load(place, kHuge), kDataLoss) << place;
  EXPECT_EQ(load(kAtParts, 0x1'0000'0002), kDataLoss) << "it is no 2";
  EXPECT_EQ(load(kAtFirstOfBodies, 0x1'0000'000b), kDataLoss) << "it is no 11";
  // Numbers of steps ascend, within the window.
  EXPECT_EQ(load(kAtSecondNumber, 10), kDataLoss);
  EXPECT_EQ(load(kAtSecondNumber, 9), kDataLoss);
  EXPECT_EQ(load(kAtSecondNumber, 10 + Ledger::kWindow - 1), StatusCode::kOk);
  EXPECT_EQ(load(kAtSecondNumber, 10 + Ledger::kWindow), kDataLoss);
  EXPECT_EQ(load(kAtNumber, 14), kDataLoss);
}

TEST(Ledger, RefusesASessionThatComesTwiceOrKeepsTooMuch) {
  Ledger one;
  Record(one, Of(1), 1, 1, 5, kBody);
  const std::vector<std::byte> bytes = one.Save();
  constexpr std::size_t kHead = 5 * sizeof(std::uint64_t);
  const auto with_sessions = [&](std::uint64_t sessions) {
    std::vector<std::byte> all(bytes.begin(), bytes.begin() + kHead);
    for (std::uint64_t s = 0; s < sessions; ++s) {
      all.insert(all.end(), bytes.begin() + kHead, bytes.end());
      const std::uint64_t id = s % (kMaxSessions + 1);
      std::memcpy(&all[all.size() - (bytes.size() - kHead) + sizeof(id)], &id, sizeof(id));
    }
    std::memcpy(&all[4 * sizeof(sessions)], &sessions, sizeof(sessions));
    Ledger loaded;
    return loaded.Load(all, kNextTable).code();
  };
  EXPECT_EQ(with_sessions(3), StatusCode::kOk);
  EXPECT_EQ(with_sessions(kMaxSessions), StatusCode::kOk);
  EXPECT_EQ(with_sessions(kMaxSessions + 1), StatusCode::kDataLoss);
  std::vector<std::byte> twice = bytes;
  twice.insert(twice.end(), bytes.begin() + kHead, bytes.end());
  const std::uint64_t two = 2;
  std::memcpy(&twice[4 * sizeof(two)], &two, sizeof(two));
  Ledger loaded;
  EXPECT_EQ(loaded.Load(twice, kNextTable).code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace slotwise
