// The scheduler picks rounds from proposals alone. A few lines of this file stand for the ranks.
#include "server/engine/schedule/round_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/operations/drop_table.h"
#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/engine/operations/summarize.h"
#include "slotwise/sizing.h"

namespace slotwise {
namespace {

constexpr TableId kAds{1};
constexpr TableId kUsers{2};
constexpr std::uint64_t kTimeout = 1000;

template <class Request>
Proposal Of(TicketNumber ticket, TableId table) {
  Proposal a;
  a.operation = Request::kOperation;
  a.of_table = true;
  a.operation_class = Request::kClass;
  a.table = table;
  a.ticket = ticket;
  return a;
}

// A batch of 4 samples with 8 keys.
template <class Request>
Proposal WithBatch(TicketNumber ticket, TableId table) {
  Proposal a = Of<Request>(ticket, table);
  a.samples = 4;
  a.keys = 8;
  return a;
}

Proposal Lookup(TicketNumber ticket, TableId table = kAds, LookupMode mode = LookupMode::kTrain) {
  Proposal a = WithBatch<LookupRequest>(ticket, table);
  a.mode = mode;
  return a;
}

Proposal Push(TicketNumber ticket, StepId step, TableId table = kAds) {
  Proposal a = WithBatch<PushRequest>(ticket, table);
  a.step = step;
  return a;
}

Proposal Drop(TicketNumber ticket, TableId table) {
  Proposal a = Of<DropTableRequest>(ticket, table);
  a.drops_table = DropTableRequest::kDropsTable;
  return a;
}

Proposal Summarize(TicketNumber ticket, TableId table = kAds, bool with_digest = false) {
  Proposal a = Of<SummarizeRequest>(ticket, table);
  a.payload = Payload(with_digest);
  return a;
}

Proposal Digest(TicketNumber ticket) { return Summarize(ticket, kAds, true); }

Header Says(std::vector<Proposal> proposals, std::uint64_t now_ms = 0, bool closed = false) {
  Header header;
  header.now_ms = now_ms;
  header.closed = closed;
  header.count = static_cast<std::uint32_t>(proposals.size());
  std::ranges::copy(proposals, header.proposals.begin());
  return header;
}

// A scheduler, and the tables that it reads.
class RoundSchedulerTest : public testing::Test {
 protected:
  RoundSchedulerTest() {
    for (const TableId id : {kAds, kUsers}) {
      TableOptions options;
      options.slots = 2;
      options.dim = 8;
      tables_.Add(Table{.info = {id, options}, .shard = nullptr});
    }
  }

  static std::uint64_t BytesOf(std::uint64_t lookups) { return lookups * RoundBytes(4, 8, 2, 8, false); }
  // A round holds so many of Lookup's batches.
  void LimitRounds(std::uint64_t lookups) {
    round_scheduler_.emplace(RoundSchedulerLimits{BytesOf(lookups), kTimeout}, tables_);
  }

  Decision Hear(const std::vector<Header>& headers) { return round_scheduler_->Decide(headers); }
  Decision HearNothing() { return Hear({Says({})}); }

  // What the engine does in the round of a push that succeeds.
  void Apply(const Round& round, std::uint64_t table_step) {
    std::vector<Ledger::TableStep> steps;
    std::vector<std::uint32_t> bodies;
    round.ForEachTable([&](const Round& share) {
      tables_.Get(share.table)->steps = table_step;
      steps.push_back({share.table, table_step});
      bodies.insert(bodies.end(), share.bodies.begin(), share.bodies.end());
    });
    tables_.Record({KeyOf(round.table, round.step).table, round.step.session}, round.step, steps, bodies);
  }

  Tables tables_{100};
  std::optional<RoundScheduler> round_scheduler_{std::in_place, RoundSchedulerLimits{1 << 20, kTimeout},
                                                 tables_};
};

using Numbers = std::vector<TicketNumber>;

std::vector<TicketNumber> Tickets(const Round& round) {
  std::vector<TicketNumber> tickets;
  for (const RoundPart& part : round.parts) tickets.push_back(part.ticket.number);
  return tickets;
}

std::vector<TicketNumber> Tickets(const std::optional<Round>& round) {
  return round ? Tickets(*round) : Numbers();
}

std::vector<TicketNumber> Waiters(const std::optional<Round>& round) {
  std::vector<TicketNumber> tickets;
  if (!round) return tickets;
  for (const Ticket& waiter : round->waiters) tickets.push_back(waiter.number);
  return tickets;
}

// The tickets that are answered without a round, and how.
using Answers = std::vector<std::pair<TicketNumber, StatusCode>>;
Answers Early(const Decision& decision) {
  Answers answers;
  for (const EarlyAnswer& answer : decision.answers)
    answers.emplace_back(answer.ticket.number, answer.status.code());
  return answers;
}
using enum StatusCode;

TEST_F(RoundSchedulerTest, SummariesOfATableThatWaitShareARound) {
  EXPECT_EQ(Waiters(Hear({Says({Summarize(1), Digest(2), Summarize(3, kUsers), Summarize(4)}),
                          Says({Digest(11), Summarize(12)})})
                        .round),
            (Numbers{1, 4, 12}));
  EXPECT_EQ(round_scheduler_->ready_rounds(), 2U);
  // The first round is running, so a summary that comes now waits for another.
  EXPECT_EQ(Waiters(Hear({Says({Summarize(5), Digest(6)}), Says({})}).round), (Numbers{2, 11, 6}));
  EXPECT_EQ(Waiters(HearNothing().round), (Numbers{3}));
  EXPECT_EQ(Waiters(HearNothing().round), (Numbers{5}));
  EXPECT_FALSE(HearNothing().round);
}

TEST_F(RoundSchedulerTest, SummariesThatShareARoundEndWithTheirTable) {
  const Decision dropped = Hear({Says({Drop(1, kAds), Digest(2), Digest(3)})});
  EXPECT_EQ(Early(dropped), (Answers{{2, kNotFound}, {3, kNotFound}}));
  EXPECT_FALSE(HearNothing().round);
}

TEST_F(RoundSchedulerTest, HasNothingToDoAtFirst) {
  const Decision decision = Hear({Says({}), Says({})});
  EXPECT_FALSE(decision.round);
  EXPECT_FALSE(decision.more_is_ready);
  EXPECT_FALSE(decision.finished);
  EXPECT_FALSE(decision.closing);
}

TEST_F(RoundSchedulerTest, ServesTheLookupsOfAllRanksInOneRound) {
  const Decision decision = Hear({Says({Lookup(10)}), Says({}), Says({Lookup(20), Lookup(21)})});
  EXPECT_EQ(Tickets(decision.round), (Numbers{10, 20, 21}));
  EXPECT_FALSE(decision.more_is_ready);
}

TEST_F(RoundSchedulerTest, KeepsTablesAndModesApartAndTheirOrder) {
  const Decision first =
      Hear({Says({Lookup(1), Lookup(2, kUsers), Lookup(3, kAds, LookupMode::kEval), Lookup(4)})});
  EXPECT_EQ(Tickets(first.round), (Numbers{1, 4}));
  EXPECT_TRUE(first.more_is_ready);
  EXPECT_EQ(Tickets(HearNothing().round), (Numbers{2}));
  const Decision last = HearNothing();
  EXPECT_EQ(Tickets(last.round), (Numbers{3}));
  EXPECT_FALSE(last.more_is_ready);
}

TEST_F(RoundSchedulerTest, NumbersRoundsFromOneOn) {
  EXPECT_EQ(Hear({Says({Lookup(1), Lookup(2, kUsers)})}).round->number, 1U);
  EXPECT_EQ(HearNothing().round->number, 2U);
  EXPECT_FALSE(HearNothing().round);
  EXPECT_EQ(Hear({Says({Push(3, {9, 1, 0, 1})})}).round->number, 3U);
}

TEST_F(RoundSchedulerTest, PutsTheRestInTheNextRoundWhenARoundIsFull) {
  LimitRounds(2);
  EXPECT_EQ(Tickets(Hear({Says({Lookup(1), Lookup(2), Lookup(3)})}).round), (Numbers{1, 2}));
  EXPECT_EQ(Tickets(HearNothing().round), (Numbers{3}));
}

TEST_F(RoundSchedulerTest, TakesAsMuchOfEveryRankWhenARoundIsFull) {
  LimitRounds(2);
  EXPECT_EQ(Hear({Says({Summarize(9), Lookup(1), Lookup(2), Lookup(3)}), Says({})}).round->operation,
            SummarizeRequest::kOperation);
  EXPECT_EQ(Tickets(Hear({Says({}), Says({Lookup(4), Lookup(5)})}).round), (Numbers{1, 4}));
  EXPECT_EQ(Tickets(HearNothing().round), (Numbers{2, 5}));
  EXPECT_EQ(Tickets(HearNothing().round), (Numbers{3}));
}

TEST_F(RoundSchedulerTest, WaitsForAllPartsOfAStepWhereverTheyCome) {
  const Decision waits = Hear({Says({Push(1, {9, 1, 0, 3})}), Says({Push(2, {9, 1, 2, 3})})});
  EXPECT_FALSE(waits.round);
  EXPECT_TRUE(waits.awaits_parts);
  const Decision complete = Hear({Says({Push(3, {9, 1, 1, 3})}), Says({})});
  ASSERT_TRUE(complete.round);
  EXPECT_EQ(complete.round->operation, PushRequest::kOperation);
  EXPECT_EQ(Tickets(complete.round), (Numbers{1, 3, 2}));  // in rank order
  EXPECT_EQ(complete.round->waiters.size(), 3U);
  EXPECT_FALSE(complete.awaits_parts);
}

TEST_F(RoundSchedulerTest, GivesEveryStepARoundOfItsOwn) {
  EXPECT_EQ(Tickets(Hear({Says({Push(1, {9, 1, 0, 1}), Push(2, {9, 2, 0, 1})})}).round), (Numbers{1}));
  EXPECT_EQ(Tickets(HearNothing().round), (Numbers{2}));
}

TEST_F(RoundSchedulerTest, LetsAPartThatComesAgainWaitWithTheFirst) {
  EXPECT_FALSE(Hear({Says({Push(1, {9, 1, 0, 2})}), Says({Push(2, {9, 1, 0, 2})})}).round);
  const Decision complete =
      Hear({Says({}), Says({Summarize(5, kUsers), Push(3, {9, 1, 1, 2}), Push(4, {9, 1, 1, 2})})});
  EXPECT_EQ(complete.round->operation, SummarizeRequest::kOperation);
  const Decision decision = Hear({Says({Push(6, {9, 1, 0, 2})}), Says({})});
  EXPECT_EQ(decision.repeated, (std::vector<Ticket>{{Rank{0}, 6}}))
      << "the complete step waits for its round";
  EXPECT_EQ(Tickets(decision.round), (Numbers{1, 3}));
  EXPECT_EQ(decision.round->waiters.size(), 5U);
}

TEST_F(RoundSchedulerTest, AnswersAStepThatWasAppliedAsBefore) {
  Apply(*Hear({Says({Push(1, {9, 1, 0, 1})})}).round, 41);
  const Decision again = Hear({Says({Push(2, {9, 1, 0, 1})})});
  EXPECT_FALSE(again.round);
  ASSERT_EQ(again.answers.size(), 1U);
  EXPECT_EQ(again.answers[0].ticket, (Ticket{Rank{0}, 2}));
  EXPECT_TRUE(again.answers[0].status.ok());
  EXPECT_EQ(again.answers[0].applied.table_step, 41U);
  EXPECT_EQ(again.answers[0].applied.now.step, 41U);
}

TEST_F(RoundSchedulerTest, RefusesAStepThatComesAgainWithAnotherBody) {
  const auto with_body = [](Proposal push, std::uint32_t body) {
    push.body = body;
    return push;
  };
  const auto first = [&](TicketNumber ticket, std::uint32_t body) {
    return with_body(Push(ticket, {9, 1, 0, 2}), body);
  };
  const Proposal second = with_body(Push(4, {9, 1, 1, 2}), 8);
  // While the step waits for its other part, while it waits for its round, and when it was applied.
  const Decision waiting = Hear({Says({first(1, 7), first(2, 6), first(3, 7)})});
  EXPECT_EQ(Early(waiting), (Answers{{2, kFailedPrecondition}}));
  const Decision complete = Hear({Says({Lookup(10), second, first(5, 6), first(6, 7)})});
  EXPECT_EQ(Early(complete), (Answers{{5, kFailedPrecondition}}));
  const std::optional<Round> round = HearNothing().round;
  ASSERT_TRUE(round);
  EXPECT_EQ(round->bodies, (std::vector<std::uint32_t>{7, 8}));
  EXPECT_EQ(round->waiters.size(), 4U);
  Apply(*round, 1);
  const Decision applied = Hear({Says({first(7, 6), first(8, 7), with_body(Push(9, {9, 1, 0, 1}), 1)})});
  EXPECT_EQ(Early(applied), (Answers{{7, kFailedPrecondition}, {8, kOk}, {9, kOk}}))
      << "the last one was cut otherwise, and cannot be compared";
}

// A part of a step of several tables, of one part each unless said otherwise.
Proposal PushTo(TableId table, std::uint32_t place, TicketNumber ticket, std::uint32_t tables = 2,
                std::uint32_t part = 0, std::uint32_t parts = 1, std::uint64_t number = 1) {
  return Push(
      ticket,
      {.session = 9, .number = number, .part = part, .parts = parts, .place = place, .tables = tables},
      table);
}

TEST_F(RoundSchedulerTest, RunsAStepOfSeveralTablesInOneRoundOnceAllOfItIsThere) {
  EXPECT_FALSE(Hear({Says({PushTo(kUsers, 1, 1, 2, 0, 2), PushTo(kAds, 0, 2, 2, 1, 2)})}).round);
  const Decision waiting = Hear({Says({PushTo(kUsers, 1, 3, 2, 1, 2)})});
  EXPECT_FALSE(waiting.round);
  EXPECT_EQ(waiting.awaited, (StepKey{TableId{0}, 9, 1}));
  const Decision complete = Hear({Says({PushTo(kAds, 0, 4, 2, 0, 2), Lookup(5)})});
  ASSERT_TRUE(complete.round);
  EXPECT_EQ(complete.round->table, kAds);
  EXPECT_EQ(Tickets(complete.round), (Numbers{4, 2}));
  ASSERT_EQ(complete.round->others.size(), 1U);
  EXPECT_EQ(complete.round->others[0].table, kUsers);
  EXPECT_EQ(Tickets(complete.round->others[0]), (Numbers{1, 3}));
  Apply(*complete.round, 6);
  // Every part gets the answer of its own table, again and again.
  const Decision again = Hear({Says({PushTo(kUsers, 1, 6, 2, 1, 2), PushTo(kAds, 0, 7, 2, 0, 2)})});
  ASSERT_EQ(again.answers.size(), 2U);
  EXPECT_EQ(again.answers[0].applied.table_step, 6U);
  EXPECT_TRUE(again.answers[1].status.ok());
  EXPECT_EQ(Tickets(again.round), (Numbers{5}));
  // A step of one of the tables is another one, whatever its number.
  EXPECT_TRUE(Hear({Says({Push(8, {9, 1, 0, 1})})}).round);
}

TEST_F(RoundSchedulerTest, RefusesAStepThatComesAgainWithOtherTables) {
  const auto refused = [](const Decision& decision) {
    return decision.answers.size() == 1 && decision.answers[0].status.code() == kFailedPrecondition;
  };
  EXPECT_FALSE(Hear({Says({PushTo(kAds, 0, 1)})}).round);
  EXPECT_TRUE(refused(Hear({Says({PushTo(kAds, 1, 2)})}))) << "a table at two places";
  EXPECT_TRUE(refused(Hear({Says({PushTo(kUsers, 0, 3)})}))) << "two tables at a place";
  EXPECT_TRUE(refused(Hear({Says({PushTo(kUsers, 1, 4, 3)})}))) << "more tables";
  const Decision complete = Hear({Says({Lookup(10), PushTo(kUsers, 1, 5), PushTo(kAds, 1, 6)})});
  EXPECT_TRUE(refused(complete)) << "while it waits for its round";
  Apply(*HearNothing().round, 1);
  EXPECT_TRUE(refused(Hear({Says({PushTo(kAds, 1, 7)})}))) << "when it was applied";
  EXPECT_TRUE(refused(Hear({Says({PushTo(kAds, 0, 8, 3)})})));
}

// Two parts of a step hear that one's table is gone: that part first.
void ExpectOwnReasonFirst(const Decision& decision, TicketNumber own, TicketNumber of_another) {
  ASSERT_EQ(Early(decision), (Answers{{own, kNotFound}, {of_another, kNotFound}}));
  EXPECT_FALSE(decision.answers[0].for_another);
  EXPECT_TRUE(decision.answers[1].for_another);
}

TEST_F(RoundSchedulerTest, DropsAStepOfSeveralTablesWithAnyOfThem) {
  EXPECT_FALSE(Hear({Says({PushTo(kAds, 0, 1)})}).round);
  const Decision dropped = Hear({Says({Lookup(9, kUsers), Drop(2, kUsers), PushTo(kUsers, 1, 3)})});
  EXPECT_EQ(Tickets(dropped.round), (Numbers{9}));
  const Decision end = HearNothing();  // the step is complete by now, and goes with its second table
  ExpectOwnReasonFirst(end, 3, 1);
  EXPECT_TRUE(end.finished || !end.more_is_ready);
}

TEST_F(RoundSchedulerTest, DropsAnIncompleteStepOfSeveralTablesWithAnyOfThem) {
  EXPECT_FALSE(Hear({Says({PushTo(kUsers, 1, 1), PushTo(kUsers, 1, 2)})}).round);
  const Decision end = Hear({Says({Drop(3, kUsers)})});
  ASSERT_EQ(end.answers.size(), 2U);
  EXPECT_FALSE(end.awaits_parts);
  EXPECT_FALSE(Hear({Says({PushTo(kAds, 0, 4, 2, 0, 2), PushTo(kUsers, 1, 5, 2, 0, 2)})}).round);
  ExpectOwnReasonFirst(Hear({Says({Drop(6, kUsers)})}), 5, 4);
}

TEST_F(RoundSchedulerTest, ServesTheLookupsOfOneCallInOneRound) {
  const auto joined = [](Proposal lookup) {
    lookup.joined = true;
    return lookup;
  };
  const Decision all = Hear({Says({joined(Lookup(1)), joined(Lookup(2, kUsers)), Lookup(3, kUsers)})});
  EXPECT_EQ(Tickets(all.round), (Numbers{1}));
  ASSERT_EQ(all.round->others.size(), 1U);
  EXPECT_EQ(Tickets(all.round->others[0]), (Numbers{2, 3})) << "another lookup comes along";
  // One that was not joined to it has a round of its own.
  EXPECT_TRUE(Hear({Says({Lookup(4), joined(Lookup(5, kUsers))})}).round->others.empty());
  EXPECT_EQ(Tickets(HearNothing().round), (Numbers{5}));
  LimitRounds(2);
  const Decision some = Hear(
      {Says({joined(Lookup(1)), joined(Lookup(2, kUsers)), joined(Lookup(3, kAds, LookupMode::kEval))})});
  EXPECT_EQ(some.round->others.size(), 1U) << "as far as a round holds them";
  EXPECT_EQ(Tickets(HearNothing().round), (Numbers{3}));
}

TEST_F(RoundSchedulerTest, RefusesASessionThatMayHaveBeenForgotten) {
  Tables few(100, 1, {.max_sessions = 1, .first_epoch = 5});
  TableOptions options;
  options.slots = 2;
  options.dim = 8;
  few.Add(Table{.info = {few.NewId(), options}, .shard = nullptr});
  round_scheduler_.emplace(RoundSchedulerLimits{1 << 20, kTimeout}, few);
  const auto push = [&](std::uint64_t session, std::uint64_t epoch) {
    const Decision decision = Hear({Says({Push(1, {session, 1, 0, 1, epoch}, TableId{1})})});
    if (decision.round) {
      const Round& round = *decision.round;
      few.Record({round.table, session}, round.step, std::array{Ledger::TableStep{round.table, 1}},
                 round.bodies);
      return kOk;
    }
    return decision.answers.at(0).status.code();
  };
  EXPECT_EQ(few.epoch(), 5U);
  EXPECT_EQ(push(1, 5), kOk);
  EXPECT_EQ(push(2, 0), kOk);                  // and session 1 is forgotten
  EXPECT_EQ(push(1, 5), kFailedPrecondition);  // it would be applied a second time
  EXPECT_EQ(push(3, 0), kFailedPrecondition);
  EXPECT_EQ(few.epoch(), 6U);
  EXPECT_EQ(push(3, 7), kFailedPrecondition);  // no rank said so
  EXPECT_EQ(push(3, 6), kOk);
}

TEST_F(RoundSchedulerTest, RefusesAStepThatIsTooFarBehind) {
  Apply(*Hear({Says({Push(1, {9, Ledger::kWindow, 0, 1})})}).round, 1);
  const Decision old = Hear({Says({Push(2, {9, 0, 0, 1})})});
  EXPECT_FALSE(old.round);
  EXPECT_EQ(Early(old), (Answers{{2, kFailedPrecondition}}));
  EXPECT_TRUE(Hear({Says({Push(3, {9, 1, 0, 1})})}).round);
}

TEST_F(RoundSchedulerTest, TriesAStepAgainThatWasRefused) {
  EXPECT_TRUE(Hear({Says({Push(1, {9, 1, 0, 1})})}).round);  // and the table does not record it
  EXPECT_TRUE(Hear({Says({Push(2, {9, 1, 0, 1})})}).round);
}

TEST_F(RoundSchedulerTest, CountsStepsOfEachTableApart) {
  Apply(*Hear({Says({Push(1, {9, 1, 0, 1}, kAds)})}).round, 1);
  EXPECT_TRUE(Hear({Says({Push(2, {9, 1, 0, 1}, kUsers)})}).round);
}

TEST_F(RoundSchedulerTest, DropsAStepWhosePartsDoNotCome) {
  Hear({Says({Push(1, {9, 1, 0, 2})}, 100)});
  EXPECT_TRUE(Hear({Says({}, 100 + kTimeout - 1)}).answers.empty());
  const Decision late = Hear({Says({}, 100 + kTimeout)});
  EXPECT_EQ(Early(late), (Answers{{1, kDeadlineExceeded}}));
  EXPECT_FALSE(late.awaits_parts);
}

TEST_F(RoundSchedulerTest, KeepsDeadlinesInOrderThoughAClockRunsBack) {
  Hear({Says({Push(1, {9, 1, 0, 2})}, 100)});
  Hear({Says({Push(2, {9, 2, 0, 2})}, 50)});
  EXPECT_EQ(Hear({Says({}, 100 + kTimeout - 1)}).answers.size(), 0U);
  EXPECT_EQ(Hear({Says({}, 100 + kTimeout)}).answers.size(), 2U);
}

TEST_F(RoundSchedulerTest, RefusesAPartThatCountsThePartsDifferently) {
  const Decision decision = Hear({Says({Push(1, {9, 1, 0, 2}), Push(2, {9, 1, 1, 3})})});
  EXPECT_EQ(Early(decision), (Answers{{2, kInvalidArgument}}));
  EXPECT_TRUE(decision.awaits_parts);
}

// A step may have 65,536 parts, and as many who wait: they are not searched for each of those.
TEST_F(RoundSchedulerTest, LooksOnceAStepForThePartsThatHaveNotCome) {
  std::vector<Proposal> pushes;
  for (std::uint32_t part = 0; part < 8; ++part) pushes.push_back(Push(1 + part, {9, 1, part, 9}));
  Hear({Says(pushes)});
  std::set<const std::string*> texts;
  std::size_t waiters = 0;
  round_scheduler_->ForEachThatAwaits([&](const Ticket&, const auto& what) {
    ++waiters;
    texts.insert(&what());
    EXPECT_EQ(what().find("part 8 of 9 of table"), 0U) << what();
  });
  EXPECT_EQ(waiters, 8U);
  EXPECT_EQ(texts.size(), 1U);
}

TEST_F(RoundSchedulerTest, RefusesAPartThatBringsAnotherRateThanTheFirst) {
  const auto at = [](Proposal push, std::optional<float> rate) {
    push.learning_rate = rate;
    push.body = rate ? 1 : 0;
    return push;
  };
  for (const std::optional<float> rate : {std::optional(0.5F), std::optional<float>()}) {
    const std::optional<float> other = rate ? std::nullopt : std::optional(0.5F);
    const std::uint64_t number = rate ? 1 : 2;
    const Decision refused =
        Hear({Says({at(Push(1, {9, number, 0, 2}), rate), at(Push(2, {9, number, 1, 2}), other)})});
    EXPECT_EQ(Early(refused), (Answers{{2, kInvalidArgument}}));
    // It may come again with the right one, though its body is another then.
    const Decision complete = Hear({Says({at(Push(3, {9, number, 1, 2}), rate)})});
    ASSERT_TRUE(complete.round);
    EXPECT_EQ(complete.round->learning_rate, rate);
    EXPECT_EQ(complete.round->waiters.size(), 2U);
  }
}

TEST_F(RoundSchedulerTest, GivesEachTableOfAStepTheRateThatItsPartsBring) {
  Proposal second = PushTo(kUsers, 1, 2);
  second.learning_rate = 0.0F;
  const Decision complete = Hear({Says({PushTo(kAds, 0, 1), second})});
  ASSERT_TRUE(complete.round);
  EXPECT_EQ(complete.round->learning_rate, std::nullopt);
  EXPECT_EQ(complete.round->others.at(0).learning_rate, std::optional(0.0F));
}

TEST_F(RoundSchedulerTest, RefusesAStepThatGrowsLargerThanARound) {
  LimitRounds(1);
  const Decision decision = Hear({Says({Push(1, {9, 1, 0, 2}), Push(2, {9, 1, 1, 2})})});
  EXPECT_FALSE(decision.round);
  EXPECT_EQ(Early(decision), (Answers{{1, kResourceExhausted}, {2, kResourceExhausted}}));
}

TEST_F(RoundSchedulerTest, AnswersPartsThatComeAfterTheirStepWasTooLarge) {
  LimitRounds(1);
  const Decision large = Hear({Says({Push(1, {9, 1, 0, 4}), Push(2, {9, 1, 1, 4})})});
  EXPECT_EQ(large.answers.size(), 2U);
  EXPECT_EQ(large.awaited, std::nullopt) << "no caller waits for it";
  const Decision more = Hear({Says({Push(3, {9, 1, 2, 4}), Push(4, {9, 1, 0, 4})})});
  EXPECT_EQ(Early(more), (Answers{{3, kResourceExhausted}, {4, kResourceExhausted}})) << "at once";
  EXPECT_TRUE(more.awaits_parts);
  const Decision last = Hear({Says({Push(5, {9, 1, 3, 4})})});
  EXPECT_EQ(Early(last), (Answers{{5, kResourceExhausted}}));
  EXPECT_FALSE(last.awaits_parts) << "all of its parts have been told";

  EXPECT_EQ(Tickets(Hear({Says({Push(6, {9, 1, 0, 1})})}).round), (Numbers{6}))
      << "the step may come again, smaller";
}

// One bag of many keys gathers little, and its rows' gradients may take many partial sums.
TEST_F(RoundSchedulerTest, CountsPartialSumsOfAStepAndNotOfALookup) {
  constexpr TableId kWide{3};
  constexpr std::uint32_t kDim = 256;
  constexpr std::uint32_t kKeys = 22'000;
  TableOptions options;
  options.dim = kDim;
  tables_.Add(Table{.info = {kWide, options}, .shard = nullptr});
  const auto with_keys = [](Proposal proposal) {
    proposal.samples = 1;
    proposal.keys = kKeys;
    return proposal;
  };
  const auto hear_two_parts = [&](std::uint64_t most, std::uint64_t step) {
    round_scheduler_.emplace(RoundSchedulerLimits{most, kTimeout}, tables_);
    return Hear(
        {Says({with_keys(Push(1, {9, step, 0, 2}, kWide)), with_keys(Push(2, {9, step, 1, 2}, kWide))})});
  };
  const std::uint64_t bytes = 2 * (kKeys / 11 * kDim * 4);
  EXPECT_EQ(Tickets(hear_two_parts(bytes, 1).round), (Numbers{1, 2}));
  const Decision refused = hear_two_parts(bytes - 1, 2);
  EXPECT_FALSE(refused.round);
  EXPECT_EQ(Early(refused), (Answers{{1, kResourceExhausted}, {2, kResourceExhausted}}));

  const std::uint64_t gathered = 2 * RoundBytes(1, kKeys, 1, kDim, false);
  ASSERT_LT(gathered, bytes);
  round_scheduler_.emplace(RoundSchedulerLimits{gathered, kTimeout}, tables_);
  EXPECT_EQ(Tickets(Hear({Says({with_keys(Lookup(1, kWide)), with_keys(Lookup(2, kWide))})}).round),
            (Numbers{1, 2}));
}

TEST_F(RoundSchedulerTest, CountsAStepAsTheClientsDo) {
  for (const std::uint64_t keys : {0, 1, 10, 11, 12, 40'000}) {
    for (const bool weighted : {false, true}) {
      EXPECT_EQ(StepBytes(3, keys, 2, 200, weighted), sizing::StepBytes(keys, 6, 200, weighted)) << keys;
    }
  }
}

TEST_F(RoundSchedulerTest, ForgetsAStepThatWasTooLargeAtItsDeadline) {
  LimitRounds(1);
  EXPECT_EQ(Hear({Says({Push(1, {9, 1, 0, 4}), Push(2, {9, 1, 1, 4})})}).answers.size(), 2U);
  const Decision late = Hear({Says({}, kTimeout)});
  EXPECT_TRUE(late.answers.empty()) << "everybody had an answer";
  EXPECT_FALSE(late.awaits_parts);
}

TEST_F(RoundSchedulerTest, KnowsWhichStepHasWaitedLongestForItsParts) {
  EXPECT_EQ(HearNothing().awaited, std::nullopt);
  Hear({Says({Push(1, {9, 7, 0, 2})}, 5)});
  EXPECT_EQ(Hear({Says({Push(2, {9, 6, 0, 2}), Push(3, {8, 1, 0, 2}, kUsers)}, 6)}).awaited,
            (StepKey{kAds, 9, 7}));
  EXPECT_EQ(Hear({Says({Push(4, {9, 7, 1, 2})}, 7)}).awaited, (StepKey{kAds, 9, 6}));
  EXPECT_EQ(Hear({Says({Push(5, {9, 6, 1, 2})}, 8)}).awaited, (StepKey{kUsers, 8, 1}));
  EXPECT_EQ(Hear({Says({}, 6 + kTimeout)}).awaited, std::nullopt);
}

TEST_F(RoundSchedulerTest, NamesPartsThatComeAgain) {
  EXPECT_EQ(Hear({Says({Push(1, {9, 1, 0, 2})}), Says({Push(2, {9, 1, 0, 2})})}).repeated,
            (std::vector<Ticket>{{Rank{1}, 2}}));
  const Decision complete = Hear({Says({Push(3, {9, 1, 1, 2}), Push(4, {9, 1, 0, 2})}), Says({})});
  EXPECT_EQ(complete.repeated, (std::vector<Ticket>{{Rank{0}, 4}})) << "all parts are there";
  EXPECT_EQ(Tickets(complete.round), (Numbers{1, 3}));
  EXPECT_TRUE(HearNothing().repeated.empty());
}

TEST_F(RoundSchedulerTest, AnswersWhatWaitsForATableThatIsDropped) {
  const Decision drop = Hear({Says({Drop(1, kAds), Lookup(2), Push(3, {9, 1, 0, 2}), Push(6, {9, 2, 0, 1}),
                                    Lookup(4, kUsers), Drop(7, kAds)})});
  ASSERT_EQ(drop.round->operation, DropTableRequest::kOperation);
  EXPECT_EQ(drop.answers.size(), 4U);
  for (const auto& [ticket, code] : Early(drop)) EXPECT_EQ(code, kNotFound) << ticket;
  EXPECT_EQ(drop.awaited, std::nullopt);
  tables_.Remove(kAds);
  const Decision next = Hear({Says({Lookup(5)})});
  EXPECT_EQ(Tickets(next.round), (Numbers{4}));
  EXPECT_EQ(Early(next), (Answers{{5, kNotFound}}));
}

TEST_F(RoundSchedulerTest, FinishesWhatIsReadyBeforeItStops) {
  const Decision closing = Hear({Says({Lookup(1), Lookup(4, kUsers)}, 0, true), Says({Lookup(2)})});
  EXPECT_TRUE(closing.closing);
  EXPECT_FALSE(closing.finished);
  EXPECT_TRUE(closing.round);
  const Decision more = Hear({Says({}, 0, true), Says({Push(3, {9, 1, 0, 2})}, 0, true)});
  EXPECT_EQ(Tickets(more.round), (Numbers{4}));
  EXPECT_FALSE(more.finished) << "rank 1 had something to say";
  const Decision last = Hear({Says({}, 0, true), Says({}, 0, true)});
  EXPECT_TRUE(last.finished);
  EXPECT_EQ(Early(last), (Answers{{3, kUnavailable}}));
}

TEST_F(RoundSchedulerTest, IsNotFinishedWhileSomethingIsReadyBehindTheRound) {
  EXPECT_TRUE(
      Hear({Says({Lookup(1), Lookup(2, kUsers), Lookup(3, kAds, LookupMode::kEval)}, 0, true)}).round);
  const Decision second = Hear({Says({}, 0, true)});
  EXPECT_EQ(Tickets(second.round), (Numbers{2}));
  EXPECT_FALSE(second.finished);
  const Decision third = Hear({Says({}, 0, true)});
  EXPECT_EQ(Tickets(third.round), (Numbers{3}));
  EXPECT_TRUE(third.finished) << "behind the round that is still to be run";
}

// Whatever comes, every request is answered once: by a round that lists it, or without one. RoundSchedulers
// that hear the same stay equal.
TEST_F(RoundSchedulerTest, AnswersEveryRequestOnceWhateverComes) {
  constexpr std::uint64_t kSeed = 20261121;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  LimitRounds(10);
  RoundScheduler twin({BytesOf(10), kTimeout}, tables_);
  std::vector<int> answered(1, 0);
  std::uint64_t now = 0;
  std::uint64_t table_step = 0;
  const auto propose = [&](bool closed) {
    std::vector<Proposal> some;
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
  bool finished = false;
  for (int turn = 0; !finished; ++turn) {
    ASSERT_LT(turn, 10'000);
    now += random() % 100;
    const bool closed = turn >= 2000;
    const std::vector<Header> headers{propose(closed), propose(closed), propose(closed)};
    const Decision decision = Hear(headers);
    twin.Decide(headers);
    ASSERT_EQ(round_scheduler_->HashState(), twin.HashState());
    finished = decision.finished;
    for (const EarlyAnswer& answer : decision.answers) ++answered.at(answer.ticket.number);
    if (!decision.round) continue;
    for (const Ticket& waiter : decision.round->waiters) ++answered.at(waiter.number);
    if (decision.round->operation == PushRequest::kOperation && random() % 4 != 0)
      Apply(*decision.round, ++table_step);
  }
  for (std::size_t ticket = 1; ticket < answered.size(); ++ticket) EXPECT_EQ(answered[ticket], 1) << ticket;
  EXPECT_GT(table_step, 100U);
}

}  // namespace
}  // namespace slotwise
