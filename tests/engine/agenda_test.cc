// The agenda picks rounds from announcements alone. Here a few lines stand for the ranks.
#include "server/engine/agenda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace slotwise {
namespace {

constexpr TableId kAds{1};
constexpr TableId kUsers{2};
constexpr std::uint64_t kTimeout = 1000;

Announcement Lookup(TicketNumber ticket, TableId table = kAds, LookupMode mode = LookupMode::kTrain) {
  Announcement a;
  a.operation = Operation::kLookup;
  a.mode = mode;
  a.table = table;
  a.samples = 4;
  a.keys = 8;
  a.ticket = ticket;
  return a;
}

Announcement Push(TicketNumber ticket, StepId step, TableId table = kAds) {
  Announcement a = Lookup(ticket, table);
  a.operation = Operation::kPush;
  a.step = step;
  return a;
}

Announcement Drop(TicketNumber ticket, TableId table) {
  Announcement a;
  a.operation = Operation::kDropTable;
  a.table = table;
  a.ticket = ticket;
  return a;
}

Header Says(std::vector<Announcement> announcements, std::uint64_t now_ms = 0, bool closed = false) {
  Header header;
  header.now_ms = now_ms;
  header.closed = closed;
  header.count = static_cast<std::uint32_t>(announcements.size());
  std::ranges::copy(announcements, header.announcements.begin());
  return header;
}

Agenda MakeAgenda(std::uint64_t max_round_bytes = 1 << 20) {
  Agenda agenda({max_round_bytes, kTimeout});
  agenda.AddTable(kAds, 2, 8);
  agenda.AddTable(kUsers, 2, 8);
  return agenda;
}

void Hear(Agenda& agenda, std::vector<Header> headers) { agenda.Absorb(headers); }

std::vector<TicketNumber> Tickets(const Round& round) {
  std::vector<TicketNumber> tickets;
  for (const RoundPart& part : round.parts) tickets.push_back(part.ticket.number);
  return tickets;
}

TEST(Agenda, HasNothingToDoAtFirst) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({}), Says({})});
  EXPECT_FALSE(agenda.HasReady());
  EXPECT_EQ(agenda.Next(), std::nullopt);
  EXPECT_FALSE(agenda.Finished());
}

TEST(Agenda, ServesTheLookupsOfAllRanksInOneRound) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Lookup(10)}), Says({}), Says({Lookup(20), Lookup(21)})});
  const auto round = agenda.Next();
  ASSERT_TRUE(round);
  EXPECT_EQ(Tickets(*round), (std::vector<TicketNumber>{10, 20, 21}));
  EXPECT_FALSE(agenda.HasReady());
}

TEST(Agenda, KeepsTablesAndModesApartAndTheirOrder) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Lookup(1), Lookup(2, kUsers), Lookup(3, kAds, LookupMode::kEval), Lookup(4)})});
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{1, 4}));
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{2}));
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{3}));
}

TEST(Agenda, PutsTheRestInTheNextRoundWhenARoundIsFull) {
  const std::uint64_t two = 2 * RoundBytes(4, 8, 2, 8, false);
  Agenda agenda = MakeAgenda(two);
  Hear(agenda, {Says({Lookup(1), Lookup(2), Lookup(3)})});
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{1, 2}));
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{3}));
}

TEST(Agenda, TakesAsMuchOfEveryRankWhenARoundIsFull) {
  const std::uint64_t two = 2 * RoundBytes(4, 8, 2, 8, false);
  Agenda agenda = MakeAgenda(two);
  Hear(agenda, {Says({Lookup(1), Lookup(2), Lookup(3)}), Says({})});
  Hear(agenda, {Says({}), Says({Lookup(4), Lookup(5)})});
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{1, 4}));
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{2, 5}));
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{3}));
}

TEST(Agenda, WaitsForAllPartsOfAStepWhereverTheyCome) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Push(1, {9, 1, 0, 3})}), Says({Push(2, {9, 1, 2, 3})})});
  EXPECT_FALSE(agenda.HasReady());
  EXPECT_TRUE(agenda.HasIncompleteSteps());
  Hear(agenda, {Says({Push(3, {9, 1, 1, 3})}), Says({})});
  const auto round = agenda.Next();
  ASSERT_TRUE(round);
  EXPECT_EQ(round->operation, Operation::kPush);
  EXPECT_EQ(Tickets(*round), (std::vector<TicketNumber>{1, 3, 2}));  // in rank order
  EXPECT_EQ(round->waiters.size(), 3U);
  EXPECT_FALSE(agenda.HasIncompleteSteps());
}

TEST(Agenda, GivesEveryStepARoundOfItsOwn) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Push(1, {9, 1, 0, 1}), Push(2, {9, 2, 0, 1})})});
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{1}));
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{2}));
}

TEST(Agenda, LetsAPartThatComesAgainWaitWithTheFirst) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Push(1, {9, 1, 0, 2})}), Says({Push(2, {9, 1, 0, 2})})});
  EXPECT_FALSE(agenda.HasReady());
  Hear(agenda, {Says({}), Says({Push(3, {9, 1, 1, 2}), Push(4, {9, 1, 1, 2})})});
  const auto round = agenda.Next();
  ASSERT_TRUE(round);
  EXPECT_EQ(Tickets(*round), (std::vector<TicketNumber>{1, 3}));
  EXPECT_EQ(round->waiters.size(), 4U);
}

TEST(Agenda, AnswersAStepThatWasAppliedAsBefore) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Push(1, {9, 1, 0, 1})})});
  agenda.StepApplied(*agenda.Next(), 41);
  Hear(agenda, {Says({Push(2, {9, 1, 0, 1})})});
  EXPECT_FALSE(agenda.HasReady());
  const auto answers = agenda.TakeAnswers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].ticket, (Ticket{Rank{0}, 2}));
  EXPECT_TRUE(answers[0].status.ok());
  EXPECT_EQ(answers[0].table_step, 41U);
}

TEST(Agenda, TriesAStepAgainThatWasRefused) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Push(1, {9, 1, 0, 1})})});
  EXPECT_TRUE(agenda.Next());  // and StepApplied is not called
  Hear(agenda, {Says({Push(2, {9, 1, 0, 1})})});
  EXPECT_TRUE(agenda.HasReady());
}

TEST(Agenda, CountsStepsOfEachTableApart) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Push(1, {9, 1, 0, 1}, kAds)})});
  agenda.StepApplied(*agenda.Next(), 1);
  Hear(agenda, {Says({Push(2, {9, 1, 0, 1}, kUsers)})});
  EXPECT_TRUE(agenda.HasReady());
}

TEST(Agenda, DropsAStepWhosePartsDoNotCome) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Push(1, {9, 1, 0, 2})}, 100)});
  Hear(agenda, {Says({}, 100 + kTimeout - 1)});
  EXPECT_TRUE(agenda.TakeAnswers().empty());
  Hear(agenda, {Says({}, 100 + kTimeout)});
  const auto answers = agenda.TakeAnswers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(agenda.HasIncompleteSteps());
}

TEST(Agenda, RefusesAPartThatCountsThePartsDifferently) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Push(1, {9, 1, 0, 2}), Push(2, {9, 1, 1, 3})})});
  const auto answers = agenda.TakeAnswers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].ticket.number, 2U);
  EXPECT_EQ(answers[0].status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(agenda.HasIncompleteSteps());
}

TEST(Agenda, RefusesAStepThatGrowsLargerThanARound) {
  Agenda agenda = MakeAgenda(RoundBytes(4, 8, 2, 8, false));
  Hear(agenda, {Says({Push(1, {9, 1, 0, 2}), Push(2, {9, 1, 1, 2})})});
  EXPECT_FALSE(agenda.HasReady());
  const auto answers = agenda.TakeAnswers();
  ASSERT_EQ(answers.size(), 2U);
  for (const Answer& answer : answers) EXPECT_EQ(answer.status.code(), StatusCode::kResourceExhausted);
}

TEST(Agenda, AnswersPartsThatComeAfterTheirStepWasTooLarge) {
  Agenda agenda = MakeAgenda(RoundBytes(4, 8, 2, 8, false));
  Hear(agenda, {Says({Push(1, {9, 1, 0, 4}), Push(2, {9, 1, 1, 4})})});
  EXPECT_EQ(agenda.TakeAnswers().size(), 2U);
  EXPECT_EQ(agenda.FirstIncompleteStep(), std::nullopt) << "nobody waits for it";
  Hear(agenda, {Says({Push(3, {9, 1, 2, 4}), Push(4, {9, 1, 0, 4})})});
  const auto answers = agenda.TakeAnswers();
  ASSERT_EQ(answers.size(), 2U) << "at once";
  for (const Answer& answer : answers) EXPECT_EQ(answer.status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(agenda.HasIncompleteSteps());
  Hear(agenda, {Says({Push(5, {9, 1, 3, 4})})});
  EXPECT_EQ(agenda.TakeAnswers().at(0).status.code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(agenda.HasIncompleteSteps()) << "all of its parts have been told";

  Hear(agenda, {Says({Push(6, {9, 1, 0, 1})})});
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{6})) << "the step may come again, smaller";
}

TEST(Agenda, ForgetsAStepThatWasTooLargeAtItsDeadline) {
  Agenda agenda = MakeAgenda(RoundBytes(4, 8, 2, 8, false));
  Hear(agenda, {Says({Push(1, {9, 1, 0, 4}), Push(2, {9, 1, 1, 4})})});
  EXPECT_EQ(agenda.TakeAnswers().size(), 2U);
  Hear(agenda, {Says({}, kTimeout)});
  EXPECT_TRUE(agenda.TakeAnswers().empty()) << "everybody had an answer";
  EXPECT_FALSE(agenda.HasIncompleteSteps());
}

TEST(Agenda, KnowsWhichStepHasWaitedLongestForItsParts) {
  Agenda agenda = MakeAgenda();
  EXPECT_EQ(agenda.FirstIncompleteStep(), std::nullopt);
  Hear(agenda, {Says({Push(1, {9, 7, 0, 2})}, 5)});
  Hear(agenda, {Says({Push(2, {9, 6, 0, 2}), Push(3, {8, 1, 0, 2}, kUsers)}, 6)});
  EXPECT_EQ(agenda.FirstIncompleteStep(), (StepKey{kAds, 9, 7}));
  Hear(agenda, {Says({Push(4, {9, 7, 1, 2})}, 7)});
  EXPECT_EQ(agenda.FirstIncompleteStep(), (StepKey{kAds, 9, 6}));
  Hear(agenda, {Says({Push(5, {9, 6, 1, 2})}, 8)});
  EXPECT_EQ(agenda.FirstIncompleteStep(), (StepKey{kUsers, 8, 1}));
  Hear(agenda, {Says({}, 6 + kTimeout)});
  EXPECT_EQ(agenda.FirstIncompleteStep(), std::nullopt);
}

TEST(Agenda, NamesPartsThatComeAgain) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Push(1, {9, 1, 0, 2})}), Says({Push(2, {9, 1, 0, 2})})});
  EXPECT_EQ(agenda.TakeRepeated(), (std::vector<Ticket>{{Rank{1}, 2}}));
  Hear(agenda, {Says({Push(3, {9, 1, 1, 2}), Push(4, {9, 1, 0, 2})}), Says({})});
  EXPECT_EQ(agenda.TakeRepeated(), (std::vector<Ticket>{{Rank{0}, 4}})) << "all parts are there";
  EXPECT_TRUE(agenda.TakeRepeated().empty());
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{1, 3}));
}

TEST(Agenda, AnswersWhatWaitsForATableThatIsDropped) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Drop(1, kAds), Lookup(2), Push(3, {9, 1, 0, 2}), Lookup(4, kUsers)})});
  const auto drop = agenda.Next();
  ASSERT_EQ(drop->operation, Operation::kDropTable);
  agenda.DropTable(kAds);
  const auto answers = agenda.TakeAnswers();
  ASSERT_EQ(answers.size(), 2U);
  for (const Answer& answer : answers) EXPECT_EQ(answer.status.code(), StatusCode::kNotFound);
  EXPECT_EQ(Tickets(*agenda.Next()), (std::vector<TicketNumber>{4}));
  Hear(agenda, {Says({Lookup(5)})});
  EXPECT_EQ(agenda.TakeAnswers()[0].status.code(), StatusCode::kNotFound);
}

TEST(Agenda, FinishesWhatIsReadyBeforeItStops) {
  Agenda agenda = MakeAgenda();
  Hear(agenda, {Says({Lookup(1)}, 0, true), Says({Lookup(2)})});
  EXPECT_TRUE(agenda.Closing());
  EXPECT_FALSE(agenda.Finished());
  EXPECT_TRUE(agenda.Next());
  Hear(agenda, {Says({}, 0, true), Says({Push(3, {9, 1, 0, 2})}, 0, true)});
  EXPECT_FALSE(agenda.Finished()) << "rank 1 had something to say";
  Hear(agenda, {Says({}, 0, true), Says({}, 0, true)});
  EXPECT_TRUE(agenda.Finished());
  const auto answers = agenda.TakeAnswers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].status.code(), StatusCode::kUnavailable);
}

// Whatever comes, every request is answered once: by a round that lists it, or without one.
TEST(Agenda, AnswersEveryRequestOnceWhateverComes) {
  constexpr std::uint64_t kSeed = 20261121;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  Agenda agenda = MakeAgenda(10 * RoundBytes(4, 8, 2, 8, false));
  std::vector<int> answered(1, 0);
  const auto count = [&] {
    for (const Answer& answer : agenda.TakeAnswers()) ++answered.at(answer.ticket.number);
  };
  std::uint64_t now = 0;
  std::uint64_t table_step = 0;
  const auto announce = [&](bool closed) {
    std::vector<Announcement> some;
    for (std::uint64_t i = closed ? 0 : random() % 5; i > 0; --i) {
      const TicketNumber ticket = answered.size();
      answered.push_back(0);
      const TableId table = random() % 2 == 0 ? kAds : kUsers;
      const std::uint32_t parts = 1 + random() % 3;
      const StepId step{random() % 4, random() % 50, static_cast<std::uint32_t>(random() % parts), parts};
      some.push_back(random() % 2 == 0 ? Lookup(ticket, table) : Push(ticket, step, table));
    }
    return Says(some, now, closed);
  };
  for (int turn = 0; !agenda.Finished(); ++turn) {
    ASSERT_LT(turn, 10'000);
    now += random() % 100;
    const bool closed = turn >= 2000;
    Hear(agenda, {announce(closed), announce(closed), announce(closed)});
    count();
    const auto round = agenda.Next();
    if (!round) continue;
    for (const Ticket& waiter : round->waiters) ++answered.at(waiter.number);
    if (round->operation == Operation::kPush && random() % 4 != 0) agenda.StepApplied(*round, ++table_step);
  }
  for (std::size_t ticket = 1; ticket < answered.size(); ++ticket) EXPECT_EQ(answered[ticket], 1) << ticket;
  EXPECT_GT(table_step, 100U);
}

}  // namespace
}  // namespace slotwise
