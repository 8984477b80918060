// Ready rounds leave in the order in which they became ready, except that lookups share a round.
#include "server/engine/schedule/ready_rounds.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace slotwise {
namespace {

constexpr TableId kAds{1};
constexpr TableId kUsers{2};

void AddLookup(ReadyRounds& ready, TicketNumber ticket, int rank = 0, TableId table = kAds,
               std::uint32_t keys = 1) {
  ready.AddLookup({table, LookupMode::kTrain, false}, {{Rank{rank}, ticket}, 1, keys});
}

Round PushOf(TicketNumber ticket, std::uint64_t number, TableId table = kAds) {
  Round round;
  round.operation_class = OperationClass::kStepPart;
  round.of_table = true;
  round.table = table;
  round.step = {1, number, 0, 1};
  round.parts = {{{Rank{0}, ticket}, 1, 1}};
  round.waiters = {{Rank{0}, ticket}};
  return round;
}

std::uint64_t Keys(TableId /*table*/, const RoundPart& part) { return part.keys; }

std::vector<TicketNumber> Next(ReadyRounds& ready, std::uint64_t most) {
  std::vector<TicketNumber> tickets;
  const std::optional<Round> round = ready.TakeNext(most, Keys);
  if (!round) return {};
  for (const RoundPart& part : round->parts) tickets.push_back(part.ticket.number);
  return tickets;
}

using Tickets = std::vector<TicketNumber>;

TEST(ReadyRounds, ALookupTakesAlongTheOthersOfItsTable) {
  ReadyRounds ready;
  AddLookup(ready, 1);
  ready.Add(PushOf(2, 1));
  AddLookup(ready, 3, 0, kUsers);
  AddLookup(ready, 4);
  EXPECT_EQ(Next(ready, 100), (Tickets{1, 4}));
  EXPECT_EQ(Next(ready, 100), (Tickets{2}));
  EXPECT_EQ(Next(ready, 100), (Tickets{3}));
  EXPECT_TRUE(ready.empty());
  EXPECT_FALSE(ready.TakeNext(100, Keys));
}

TEST(ReadyRounds, RanksTakeTurnsInAFullRound) {
  ReadyRounds ready;
  for (TicketNumber ticket = 1; ticket <= 4; ++ticket) AddLookup(ready, ticket, 0);
  for (TicketNumber ticket = 5; ticket <= 8; ++ticket) AddLookup(ready, ticket, 1);
  EXPECT_EQ(Next(ready, 5), (Tickets{1, 2, 3, 5, 6}));
  EXPECT_EQ(Next(ready, 5), (Tickets{4, 7, 8}));
}

TEST(ReadyRounds, ARanksLookupsKeepTheirOrder) {
  ReadyRounds ready;
  AddLookup(ready, 1, 0, kAds, 3);
  AddLookup(ready, 2, 0, kAds, 5);
  AddLookup(ready, 3, 0, kAds, 1);
  AddLookup(ready, 4, 1, kAds, 1);
  EXPECT_EQ(Next(ready, 7), (Tickets{1, 4})) << "2 does not fit, and 3 came behind it";
  EXPECT_EQ(Next(ready, 7), (Tickets{2, 3}));
}

TEST(ReadyRounds, FindsACompleteStepUntilItsRound) {
  ReadyRounds ready;
  ready.Add(PushOf(1, 7));
  ready.Add(PushOf(2, 8));
  ASSERT_NE(ready.FindStep({kAds, 1, 8}), nullptr);
  EXPECT_EQ(ready.FindStep({kAds, 1, 8})->waiters[0].number, 2U);
  EXPECT_EQ(ready.FindStep({kUsers, 1, 8}), nullptr);
  EXPECT_EQ(Next(ready, 1), (Tickets{1}));
  EXPECT_EQ(ready.FindStep({kAds, 1, 7}), nullptr);
}

TEST(ReadyRounds, ATableThatWaitsForItsRowsLetsOthersGoOn) {
  ReadyRounds ready;
  AddLookup(ready, 1);
  AddLookup(ready, 2, 0, kUsers);
  ready.Add(PushOf(3, 1));
  ready.Add(PushOf(4, 1, kUsers));
  AddLookup(ready, 5, 1, kUsers);
  ready.Hold(kAds);
  EXPECT_EQ(Next(ready, 100), (Tickets{2, 5}));
  EXPECT_EQ(Next(ready, 100), (Tickets{4}));
  EXPECT_FALSE(ready.TakeNext(100, Keys)) << "the rest is of the table that waits";
  EXPECT_FALSE(ready.empty());
  AddLookup(ready, 6, 0, kUsers);
  EXPECT_EQ(Next(ready, 100), (Tickets{6}));
  ready.Release(kAds);
  EXPECT_EQ(Next(ready, 100), (Tickets{1}));
  EXPECT_EQ(Next(ready, 100), (Tickets{3}));
  EXPECT_TRUE(ready.empty());
}

TEST(ReadyRounds, AStepWaitsWithAnyOfItsTablesAndLaterRoundsBehindIt) {
  constexpr TableId kOther{3};
  ReadyRounds ready;
  Round step = PushOf(1, 1, kUsers);
  step.others.push_back(PushOf(2, 1));
  ready.Add(std::move(step));
  AddLookup(ready, 3, 0, kUsers);
  AddLookup(ready, 4, 0, kOther);
  Round of_no_table;
  of_no_table.operation_class = OperationClass::kAlone;
  of_no_table.waiters = {{Rank{0}, 5}};
  ready.Add(std::move(of_no_table));
  AddLookup(ready, 6, 0, kOther);
  ready.Hold(kAds);
  EXPECT_EQ(Next(ready, 1), (Tickets{4}));
  EXPECT_FALSE(ready.TakeNext(100, Keys)) << "a round of no table waits behind the step, and 6 behind that";
  ready.Release(kAds);
  EXPECT_EQ(Next(ready, 100), (Tickets{1}));
  EXPECT_EQ(Next(ready, 100), (Tickets{3}));
  EXPECT_EQ(ready.TakeNext(100, Keys)->waiters.front().number, 5U);
  EXPECT_EQ(Next(ready, 100), (Tickets{6}));
}

TEST(ReadyRounds, GivesATablesRoundsAndNoOthers) {
  ReadyRounds ready;
  Round create;
  create.parts = {{{Rank{0}, 9}}};
  AddLookup(ready, 1);
  AddLookup(ready, 2, 0, kUsers);
  ready.Add(PushOf(3, 7));
  ready.Add(create);
  const std::vector<Round> gone = ready.TakeAllOf(kAds);
  ASSERT_EQ(gone.size(), 2U);
  EXPECT_EQ(gone[0].waiters[0].number, 3U);
  EXPECT_EQ(gone[1].operation_class, OperationClass::kLookup);
  EXPECT_EQ(gone[1].waiters[0].number, 1U);
  EXPECT_EQ(ready.FindStep({kAds, 1, 7}), nullptr);
  EXPECT_EQ(Next(ready, 100), (Tickets{2}));
  EXPECT_EQ(Next(ready, 100), (Tickets{9}));
  EXPECT_TRUE(ready.TakeAllOf(kUsers).empty());
}

// Whatever comes, every lookup gets one round, no round is too full unless of one lookup, and a rank's order
// is kept.
TEST(ReadyRounds, ServesEveryLookupOnce) {
  constexpr std::uint64_t kSeed = 12;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  ReadyRounds ready;
  std::map<std::pair<Rank, TableId>, TicketNumber> last;
  std::size_t served = 0;
  constexpr TicketNumber kLookups = 3'000;
  TicketNumber ticket = 0;
  while (served < kLookups) {
    for (std::uint64_t i = random() % 6; i > 0 && ticket < kLookups; --i) {
      AddLookup(ready, ++ticket, static_cast<int>(random() % 3), random() % 2 == 0 ? kAds : kUsers,
                1 + static_cast<std::uint32_t>(random() % 9));
    }
    const auto round = ready.TakeNext(12, Keys);
    if (!round) continue;
    std::uint64_t keys = 0;
    for (const RoundPart& part : round->parts) {
      keys += part.keys;
      ++served;
      TicketNumber& before = last[{part.ticket.rank, round->table}];
      EXPECT_LT(before, part.ticket.number);
      before = part.ticket.number;
    }
    EXPECT_LE(keys, 12U);
    EXPECT_EQ(round->waiters.size(), round->parts.size());
  }
  EXPECT_TRUE(ready.empty());
}

}  // namespace
}  // namespace slotwise
