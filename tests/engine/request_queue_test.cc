// Any thread adds to the request queue, and the engine takes from it.
#include "server/engine/schedule/request_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/engine/operations/read_rows.h"
#include "server/engine/operations/summarize.h"

namespace slotwise {
namespace {

using std::chrono::microseconds;

Request LookupOf(std::size_t keys, Status* outcome = nullptr) {
  LookupRequest request;
  request.batch.keys = BatchArray<Key>(keys);
  request.done = [outcome](const Result<PooledValues>& result) {
    if (outcome != nullptr) *outcome = result.status();
  };
  return request;
}

Status Add(RequestQueue& request_queue, Request request) { return request_queue.Add({&request, 1}); }

TEST(RequestQueue, GivesTheOldestFirstAndNoMoreThanAsked) {
  RequestQueue request_queue({.max_bytes = 1 << 20});
  for (std::size_t keys = 1; keys <= 3; ++keys) {
    ASSERT_TRUE(Add(request_queue, LookupOf(keys)).ok());
  }
  const auto first = request_queue.Take(2);
  ASSERT_EQ(first.requests.size(), 2U);
  EXPECT_EQ(first.requests[0].proposal().keys, 1U);
  EXPECT_EQ(first.requests[1].proposal().keys, 2U);
  EXPECT_FALSE(first.closed);
  EXPECT_EQ(request_queue.Take(2).requests.at(0).proposal().keys, 3U);
}

TEST(RequestQueue, RefusesWhatIsTooMuchUntilSomeIsReleased) {
  RequestQueue request_queue({.max_bytes = 100});
  ASSERT_TRUE(Add(request_queue, LookupOf(100)).ok()) << "alone, any request fits";
  EXPECT_EQ(Add(request_queue, LookupOf(1)).code(), StatusCode::kResourceExhausted);
  {
    Request taken = std::move(request_queue.Take(1).requests.at(0));
    EXPECT_EQ(request_queue.bytes(), 800U);
    EXPECT_EQ(Add(request_queue, LookupOf(1)).code(), StatusCode::kResourceExhausted)
        << "taken is not yet answered";
    EXPECT_TRUE(Add(request_queue, SummarizeRequest{}).ok()) << "it takes no room";
    const LookupRequest kept = std::move(taken.As<LookupRequest>());
    EXPECT_EQ(request_queue.bytes(), 800U) << "the batch is alive";
  }
  EXPECT_EQ(request_queue.bytes(), 0U);
  EXPECT_TRUE(Add(request_queue, LookupOf(1)).ok());
}

SummarizeRequest SummaryFor(const Caller& caller) {
  SummarizeRequest request;
  request.caller = caller;
  return request;
}

TEST(RequestQueue, SetsAsideWhatItsCallerHasAbandonedButPartsOfSteps) {
  RequestQueue request_queue({.max_bytes = 1 << 20});
  const Caller gone("gone");
  const Caller there("there");
  for (const Caller& caller : {gone, gone, there}) {
    ASSERT_TRUE(Add(request_queue, SummaryFor(caller)).ok());
  }
  PushRequest push;
  push.caller = gone;
  push.step = {.session = 1, .number = 1, .part = 0, .parts = 2};
  ASSERT_TRUE(Add(request_queue, std::move(push)).ok());
  gone.Leave();
  const RequestQueue::Taken taken = request_queue.Take(2);
  EXPECT_EQ(taken.abandoned.size(), 2U);
  ASSERT_EQ(taken.requests.size(), 2U) << "as many as were asked for, beside the abandoned ones";
  EXPECT_EQ(taken.requests[0].caller(), there);
  EXPECT_TRUE(taken.requests[1].Is<PushRequest>()) << "its step may have other parts";
}

TEST(RequestQueue, HasRoomForSoManyRequestsAboutTablesOfACaller) {
  RequestQueue request_queue({.max_bytes = 1 << 20});
  const auto add = [&](const Caller& caller) { return Add(request_queue, SummaryFor(caller)); };
  for (std::size_t i = 0; i < RequestQueue::kTableRequestsOfCaller; ++i) ASSERT_TRUE(add(Caller("a")).ok());
  const Status refused = add(Caller("a"));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(
      refused.message().starts_with("the server is busy: 64 requests about tables wait that this caller"))
      << refused.message();
  EXPECT_TRUE(add(Caller("b")).ok());
  Request lookup = LookupOf(1);
  lookup.As<LookupRequest>().caller = Caller("a");
  EXPECT_TRUE(request_queue.Add({&lookup, 1}).ok());
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(add(Caller()).ok()) << "the server makes its tables";
  EXPECT_EQ(request_queue.Take(1).requests.at(0).caller(), Caller("a"));
  EXPECT_TRUE(add(Caller("a")).ok());
}

TEST(RequestQueue, HasRoomForSoManyRequestsAboutTables) {
  RequestQueue request_queue({.max_bytes = 1 << 20});
  const auto add = [&](std::size_t number) {
    return Add(request_queue, SummaryFor(Caller("caller " + std::to_string(number))));
  };
  for (std::size_t i = 0; i < RequestQueue::kTableRequests; ++i) ASSERT_TRUE(add(i / 32).ok());
  EXPECT_EQ(add(1'000'000).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(request_queue.Take(1).requests.size(), 1U);
  EXPECT_TRUE(add(1'000'000).ok());
}

TEST(RequestQueue, TakesRequestsTogetherOrNotAtAll) {
  RequestQueue request_queue({.max_bytes = 100});
  std::vector<Request> two;
  two.push_back(LookupOf(5));
  two.push_back(LookupOf(5));
  ASSERT_TRUE(request_queue.Add(two).ok());
  std::vector<Request> more;
  more.push_back(LookupOf(1));
  more.push_back(LookupOf(2));
  EXPECT_EQ(request_queue.Add(more).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(more[0].proposal().keys, 1U) << "refused, and untouched";
  EXPECT_EQ(request_queue.bytes(), 80U);
  RequestQueue::Taken taken = request_queue.Take(8);
  ASSERT_EQ(taken.requests.size(), 2U);
  taken.requests[0].batch()->DropArrays();
  EXPECT_EQ(request_queue.bytes(), 40U) << "each request has its own share";
  EXPECT_TRUE(request_queue.Add(more).ok());
  EXPECT_EQ(request_queue.Take(8).requests.size(), 2U);
}

constexpr TableId kTable{3};

PushRequest PushOf(TableId table, StepId step, std::size_t keys = 10) {
  PushRequest request;
  request.table = table;
  request.step = step;
  request.batch.keys = BatchArray<Key>(keys);
  return request;
}

// Parts of 8 bytes of steps of which the other part does not come, until the request queue takes no more.
std::uint64_t FillWithParts(RequestQueue& request_queue, Status* refused = nullptr) {
  for (std::uint64_t step = 1;; ++step) {
    const Status added = Add(request_queue, PushOf(kTable, {9, step, 0, 2}, 1));
    if (!added.ok() && refused != nullptr) *refused = added;
    if (!added.ok()) return step - 1;
  }
}

// A message with the parts of a step of two tables and two parts.
std::vector<Request> StepOfTwoTables(std::size_t parts) {
  std::vector<Request> message;
  for (std::uint32_t i = 0; i < parts; ++i) {
    message.emplace_back(PushOf(TableId{i / 2 + 1}, {9, 1000, i % 2, 2, 0, i / 2, 2}, 1));
  }
  return message;
}

TEST(RequestQueue, KeepsAShareThatPartsOfStepsWhichOthersCompleteCannotTake) {
  RequestQueue request_queue({.max_bytes = 400, .beyond_bytes = 800});
  Status refused;
  EXPECT_EQ(FillWithParts(request_queue, &refused), 300U / 8);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "the server is busy: 296 bytes of parts wait for the rest of their steps, and "
            "limits.max_queue_mib leaves no room for 8 more");
  EXPECT_GT(refused.retry_after().count(), 0);
  std::vector<Request> half = StepOfTwoTables(3);
  EXPECT_EQ(request_queue.Add(half).code(), StatusCode::kResourceExhausted);
  std::vector<Request> twice = StepOfTwoTables(3);
  twice.push_back(std::move(half[2]));
  EXPECT_EQ(request_queue.Add(twice).code(), StatusCode::kResourceExhausted)
      << "a part that comes twice is one part";

  std::vector<Request> lookups;
  for (int i = 0; i < 2; ++i) lookups.push_back(LookupOf(9));
  EXPECT_EQ(request_queue.Add(lookups).code(), StatusCode::kResourceExhausted)
      << "several, and more than the share";
  EXPECT_TRUE(Add(request_queue, LookupOf(4)).ok());
  EXPECT_TRUE(Add(request_queue, PushOf(kTable, {9, 2000, 0, 1}, 4)).ok()) << "a step of one part";
  std::vector<Request> whole = StepOfTwoTables(4);
  EXPECT_TRUE(request_queue.Add(whole).ok());
  EXPECT_EQ(request_queue.bytes(), 296U + 32 + 32 + 32);
  EXPECT_EQ(Add(request_queue, LookupOf(2)).code(), StatusCode::kResourceExhausted)
      << "the share is taken, too";
}

TEST(RequestQueue, BoundsPartsWithoutArraysByTheirNumber) {
  RequestQueue request_queue({.max_bytes = 4000, .beyond_bytes = 8000, .request_bytes = 100});
  std::uint64_t parts = 0;
  while (Add(request_queue, PushOf(kTable, {9, parts + 1, 0, 2}, 0)).ok()) ++parts;
  EXPECT_EQ(parts, 30U);
  EXPECT_TRUE(Add(request_queue, LookupOf(1)).ok());
}

TEST(RequestQueue, KeepsTheShareThoughPartsOfTheFavouredStepGoBeyond) {
  RequestQueue request_queue({.max_bytes = 400, .beyond_bytes = 800});
  FillWithParts(request_queue);
  request_queue.Favour(StepKey{kTable, 9, 1});
  for (std::uint32_t part = 0; part < 10; ++part) {
    EXPECT_TRUE(Add(request_queue, PushOf(kTable, {9, 1, part, 20}, 10)).ok());
  }
  EXPECT_GT(request_queue.bytes(), 2 * 400U);
  EXPECT_TRUE(Add(request_queue, LookupOf(12)).ok());
  EXPECT_EQ(Add(request_queue, LookupOf(12)).code(), StatusCode::kResourceExhausted);
}

// Others had sent something else under the step's name, say, so what came is not the whole step.
TEST(RequestQueue, ChargesAMessageThatSeemedToHaveAWholeStepToThePartsOnceItWaits) {
  RequestQueue request_queue({.max_bytes = 400, .beyond_bytes = 0});
  std::vector<Request> waiting;
  const auto add_whole = [&] {
    std::vector<Request> whole = StepOfTwoTables(4);
    const Status added = request_queue.Add(whole);
    for (Request& request : request_queue.Take(4).requests) {
      request_queue.ChargeAsWaiting(request);
      waiting.push_back(std::move(request));
    }
    return added;
  };
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(add_whole().ok());
  EXPECT_EQ(request_queue.bytes(), 384U);
  EXPECT_EQ(add_whole().code(), StatusCode::kResourceExhausted) << "none of them goes beyond";
  EXPECT_EQ(Add(request_queue, PushOf(kTable, {9, 1, 0, 2}, 1)).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Add(request_queue, LookupOf(12)).ok()) << "the share is untouched";
  waiting.clear();
  EXPECT_EQ(request_queue.bytes(), 96U);
}

TEST(RequestQueue, RefusesAMessageForWhichThereIsNeverRoom) {
  RequestQueue request_queue({.max_bytes = 100, .beyond_bytes = 100});
  std::vector<Request> message;
  for (int i = 0; i < 3; ++i) message.push_back(LookupOf(9));
  EXPECT_EQ(request_queue.Add(message),
            ResourceExhausted("the requests of the message and their replies take 216 bytes, for which "
                              "limits.max_queue_mib never leaves room: send fewer in a message")
                .Because(Reason::kTooLarge));
  message.pop_back();
  EXPECT_TRUE(request_queue.Add(message).ok()) << "nothing else is there";
}

TEST(RequestQueue, LetsTheCallersTakeTurns) {
  const auto lookups = [](std::string_view caller, std::size_t count, std::size_t keys) {
    std::vector<Request> message;
    for (std::size_t i = 0; i < count; ++i) {
      message.push_back(LookupOf(keys));
      message.back().As<LookupRequest>().caller = Caller(caller);
    }
    return message;
  };
  RequestQueue request_queue({.max_bytes = std::uint64_t{1} << 30});
  std::vector<Request> flood = lookups("flood", 65'536, 1);
  ASSERT_TRUE(request_queue.Add(flood).ok());
  EXPECT_EQ(request_queue.Take(32).requests.size(), 32U);
  std::vector<Request> small = lookups("small", 1, 2);
  ASSERT_TRUE(request_queue.Add(small).ok());
  std::size_t takes = 1;
  while (std::ranges::none_of(request_queue.Take(32).requests,
                              [](const Request& request) { return request.proposal().keys == 2; })) {
    ++takes;
  }
  EXPECT_LE(takes, 2U);
}

TEST(RequestQueue, HasRoomForPartsOfTheFavouredStepAlone) {
  RequestQueue request_queue({.max_bytes = 100, .beyond_bytes = 160});
  ASSERT_TRUE(Add(request_queue, LookupOf(12)).ok());
  Request part = PushOf(kTable, {9, 4, 1, 2});
  EXPECT_EQ(request_queue.Add({&part, 1}).code(), StatusCode::kResourceExhausted);

  request_queue.Favour(StepKey{kTable, 9, 4});
  for (const StepId& step : {StepId{9, 5, 1, 2}, StepId{8, 4, 1, 2}}) {
    EXPECT_EQ(Add(request_queue, PushOf(kTable, step)).code(), StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(Add(request_queue, PushOf(TableId{4}, {9, 4, 1, 2})).code(), StatusCode::kResourceExhausted);
  std::vector<Request> together;
  together.emplace_back(PushOf(TableId{4}, {9, 4, 1, 2}));
  together.push_back(std::move(part));
  EXPECT_TRUE(request_queue.Add(together).ok()) << "one of them is of the favoured step";
  EXPECT_EQ(request_queue.bytes(), 256U);
  EXPECT_EQ(Add(request_queue, PushOf(kTable, {9, 4, 1, 2})).code(), StatusCode::kResourceExhausted)
      << "beyond what may go beyond";

  request_queue.Favour(std::nullopt);
  EXPECT_EQ(Add(request_queue, PushOf(kTable, {9, 4, 0, 2})).code(), StatusCode::kResourceExhausted);
}

TEST(RequestQueue, ChargesAnswersUntilTheyEndAndWhatARequestTakesBesideItsArrays) {
  RequestQueue request_queue({.max_bytes = 1000, .request_bytes = 50});
  std::vector<Request> two;
  two.push_back(LookupOf(10));
  two[0].As<LookupRequest>().answer_bytes = 400;
  two.emplace_back(PushRequest{});
  ASSERT_TRUE(request_queue.Add(two).ok());
  EXPECT_EQ(request_queue.bytes(), 80U + 400 + 50 + 50);
  Request more = LookupOf(1);
  more.As<LookupRequest>().answer_bytes = 400;
  const Status refused = request_queue.Add({&more, 1});
  EXPECT_EQ(
      refused.message(),
      "the server is busy: 580 bytes of requests and replies wait, and limits.max_queue_mib leaves no room "
      "for 458 more");
  RequestQueue::Taken taken = request_queue.Take(2);
  taken.requests[0].batch()->DropArrays();
  EXPECT_EQ(request_queue.bytes(), 500U) << "the answer is to come";
  const Reservation answer = std::move(taken.requests[0].As<LookupRequest>().answer_reservation);
  taken.requests.clear();
  EXPECT_EQ(request_queue.bytes(), 450U) << "somebody holds the answer";
}

TEST(RequestQueue, ChargesNoBatchThatIsChargedElsewhere) {
  Budget shared_buffer(1000);
  RequestQueue request_queue({.max_bytes = 100});
  Request charged = LookupOf(20);
  charged.batch()->reservation = *shared_buffer.Reserve(160);
  ASSERT_TRUE(request_queue.Add({&charged, 1}).ok());
  EXPECT_EQ(request_queue.bytes(), 0U);
  EXPECT_EQ(shared_buffer.used(), 160U);
  request_queue.Take(1);
  EXPECT_EQ(shared_buffer.used(), 0U);
}

TEST(RequestQueue, ChargesTheKeysOfRowsToRead) {
  RequestQueue request_queue({.max_bytes = 100});
  ASSERT_TRUE(
      Add(request_queue, ReadRowsRequest{.table = TableId{1}, .keys = std::vector<Key>(10), .done = {}})
          .ok());
  EXPECT_EQ(request_queue.bytes(), 80U);
  request_queue.Take(1);
  EXPECT_EQ(request_queue.bytes(), 0U);
}

// A clock that the test sets.
class HandClock final : public Clock {
 public:
  TimePoint Now() override { return now; }
  std::uint64_t UnixSeconds() override { return 0; }
  bool WaitFor(std::condition_variable&, std::unique_lock<std::mutex>&, microseconds,
               const std::function<bool()>& holds) override {
    return holds();
  }
  TimePoint now = TimePoint(std::chrono::hours(1));
};

// Of a request queue that is full of 10 requests, one leaves every `pause`, and another comes: what somebody
// hears for whom there is no room.
std::chrono::milliseconds HintAtOneEvery(std::chrono::milliseconds pause) {
  HandClock clock;
  RequestQueue request_queue({.max_bytes = 800}, clock);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Add(request_queue, LookupOf(10)).ok());
  for (int i = 0; i < 100; ++i) {
    clock.now += pause;
    request_queue.Take(1);
    EXPECT_TRUE(Add(request_queue, LookupOf(10)).ok());
  }
  const Status refused = Add(request_queue, LookupOf(10));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(request_queue.RetryAfter(), refused.retry_after());
  return refused.retry_after();
}

TEST(RequestQueue, SaysToAskAgainWhenHalfOfWhatItHasWillHaveGone) {
  EXPECT_EQ(HintAtOneEvery(std::chrono::milliseconds(20)), std::chrono::milliseconds(100));
  EXPECT_EQ(HintAtOneEvery(std::chrono::milliseconds(200)), std::chrono::milliseconds(1000));
  EXPECT_EQ(HintAtOneEvery(std::chrono::milliseconds(0)), std::chrono::milliseconds(50)) << "unknown rate";
  EXPECT_EQ(HintAtOneEvery(std::chrono::hours(1)), DrainMeter::kMost);
}

TEST(RequestQueue, SaysSoonerToAskAgainWhenItHasBecomeFaster) {
  HandClock clock;
  RequestQueue request_queue({.max_bytes = 800}, clock);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Add(request_queue, LookupOf(10)).ok());
  const auto hint_at = [&](std::chrono::milliseconds pause) {
    for (int i = 0; i < 200; ++i) {
      clock.now += pause;
      request_queue.Take(1);
      EXPECT_TRUE(Add(request_queue, LookupOf(10)).ok());
    }
    return Add(request_queue, LookupOf(10)).retry_after().count();
  };
  EXPECT_EQ(hint_at(std::chrono::milliseconds(500)), 2500);
  EXPECT_LE(hint_at(std::chrono::milliseconds(20)), 120);
  // Time in which nothing waits says nothing about the server.
  while (!request_queue.Take(8).requests.empty()) {
  }
  clock.now += std::chrono::hours(1);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Add(request_queue, LookupOf(10)).ok());
  EXPECT_LE(hint_at(std::chrono::milliseconds(20)), 120);
}

TEST(RequestQueue, HasRoomForASmallRequestOfACallerWithNothingThere) {
  RequestQueue request_queue({.max_bytes = 1 << 20, .request_bytes = 0});
  const auto add = [&](std::size_t keys, std::string_view name) {
    Request request = LookupOf(keys);
    request.As<LookupRequest>().caller = Caller(name);
    return Add(request_queue, std::move(request));
  };
  const std::size_t most = (1 << 20) / 8;
  ASSERT_TRUE(add(most, "large").ok());
  EXPECT_FALSE(add(1, "large").ok()) << "it has something there";
  EXPECT_FALSE(add(most / 1024 + 1, "other").ok()) << "that is not small";
  EXPECT_TRUE(add(most / 1024, "other").ok());
  EXPECT_FALSE(add(1, "other").ok());
  int more = 0;
  while (add(most / 1024, std::to_string(more)).ok()) ++more;
  EXPECT_EQ(more, 1024 / 16 - 1);
}

TEST(RequestQueue, GivesUpPushesForWhichNoOtherCallerWaits) {
  RequestQueue request_queue({.max_bytes = 1 << 20});
  const Caller late("late", Caller::Clock::now() - std::chrono::seconds(1));
  for (const StepId& step : {StepId{9, 1, 0, 1}, StepId{9, 2, 0, 2}}) {
    Request push = PushOf(TableId{1}, step, 1);
    push.As<PushRequest>().caller = late;
    ASSERT_TRUE(Add(request_queue, std::move(push)).ok());
  }
  const RequestQueue::Taken taken = request_queue.Take(8);
  ASSERT_EQ(taken.abandoned.size(), 1U);
  EXPECT_EQ(taken.abandoned[0].As<PushRequest>().step.number, 1U);
  ASSERT_EQ(taken.requests.size(), 1U) << "its other part may wait";
}

TEST(RequestQueue, TakesNothingOnceClosedButGivesWhatItHas) {
  RequestQueue request_queue({.max_bytes = 1 << 20});
  ASSERT_TRUE(Add(request_queue, LookupOf(1)).ok());
  request_queue.Close();
  Status outcome;
  Request after = LookupOf(1, &outcome);
  const Status refused = request_queue.Add({&after, 1});
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  after.Refuse(refused);
  EXPECT_EQ(outcome, refused);
  const auto taken = request_queue.Take(8);
  EXPECT_EQ(taken.requests.size(), 1U);
  EXPECT_TRUE(taken.closed);
}

TEST(RequestQueue, RingsForAllThatEndsAWait) {
  RequestQueue request_queue({.max_bytes = 1 << 20});
  int rings = 0;
  request_queue.RingToo([&] {
    EXPECT_TRUE(request_queue.AwaitNews(microseconds(0)) || rings == 3)
        << "who hears the ring finds the news";
    ++rings;
  });
  EXPECT_TRUE(Add(request_queue, LookupOf(1)).ok());
  EXPECT_EQ(rings, 1);
  EXPECT_EQ(request_queue.Take(8).requests.size(), 1U);
  request_queue.Nudge();
  EXPECT_EQ(rings, 2);
  EXPECT_EQ(request_queue.Take(8).requests.size(), 0U);
  request_queue.Close();
  EXPECT_EQ(rings, 3);
  EXPECT_TRUE(request_queue.Take(8).closed);
  request_queue.NudgeLocally();  // is no news for the others
  EXPECT_FALSE(request_queue.HasNews());
  EXPECT_EQ(rings, 4);
}

TEST(RequestQueue, WaitsForNewsAndClosingIsNewsOnce) {
  RequestQueue request_queue({.max_bytes = 1 << 20});
  EXPECT_FALSE(request_queue.AwaitNews(microseconds(0)));
  std::thread other([&] { EXPECT_TRUE(Add(request_queue, LookupOf(1)).ok()); });
  EXPECT_TRUE(request_queue.AwaitNews(std::chrono::minutes(1)));
  other.join();
  EXPECT_EQ(request_queue.Take(8).requests.size(), 1U);
  request_queue.Close();
  EXPECT_TRUE(request_queue.AwaitNews(microseconds(0)));
  EXPECT_TRUE(request_queue.Take(8).closed);
  request_queue.Close();
  EXPECT_FALSE(request_queue.AwaitNews(microseconds(0)));
}

}  // namespace
}  // namespace slotwise
