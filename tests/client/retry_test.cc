// Calls that fail are sent again, as the same step, until they are answered or the timeout ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <numeric>
#include <thread>

#include "slotwise/client.h"
#include "tests/client/fake_server.h"
#include "tests/client/later.h"
#include "tests/rpc/messages.h"
#include "tests/support/status.h"

namespace slotwise {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

// Returns keys whose reply has 136 kB: a part for each of two ranks.
std::vector<Key> LargeKeys() {
  std::vector<Key> keys(17'000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = Key{i};
  return keys;
}

class RetryTest : public testing::Test {
 protected:
  Client Connect(FakeServer& fake, const ClientOptions& options) {
    auto client = Client::Connect({fake.addresses()[0]}, options);
    EXPECT_TRUE(client.ok()) << client.status().message();
    return std::move(*client);
  }
  Client Connect(FakeServer& fake, milliseconds timeout = seconds(30)) {
    return Connect(fake, ClientOptions{.timeout = timeout});
  }

  // Counts the lines by which a client says that it has met a new start.
  static std::function<void(std::string_view)> CountStarts(std::atomic<int>& met) {
    return [&met](std::string_view line) {
      if (line.find("was started again") != std::string_view::npos) ++met;
    };
  }

  Result<std::uint64_t> PushOne(Client& client) {
    const std::vector<float> ones{1, 1};
    return client.Push("ads", {one_, {}}, ones);
  }

  Status LookUp(Client& client, const std::vector<Key>& keys, const CallOptions& call = {}) {
    out_.assign(keys.size() * 2, 0.0F);
    return client.Lookup("ads", {keys, {}}, LookupMode::kTrain, out_, call);
  }

  void ExpectValues(const std::vector<Key>& keys) {
    for (std::size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(out_[2 * i], static_cast<float>(Value(keys[i])));
  }

  const std::vector<Key> one_{Key{1}};
  const std::vector<Key> large_ = LargeKeys();
  std::vector<float> out_;
};

TEST_F(RetryTest, APushIsSentAgainAsTheSameStepToTheNextRank) {
  for (const auto code :
       {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED, grpc::StatusCode::DEADLINE_EXCEEDED}) {
    FakeServer fake(3);
    fake.before = FakeServer::FailFirst(3, "Push", code);
    Client client = Connect(fake);
    const auto step = PushOne(client);
    ASSERT_TRUE(step.ok()) << step.status().message();
    EXPECT_EQ(*step, 1u);
    const auto pushes = fake.pushes();
    ASSERT_EQ(pushes.size(), 4u);
    for (std::size_t i = 0; i < pushes.size(); ++i) {
      EXPECT_EQ(pushes[i].request.SerializeAsString(), pushes[0].request.SerializeAsString());
      EXPECT_EQ(pushes[i].rank, (pushes[0].rank + i) % 3);
    }
    EXPECT_EQ(pushes[0].request.step().session(), client.session().id());
    EXPECT_EQ(pushes[0].request.step().number(), 1u);
  }
}

TEST_F(RetryTest, ABusyServerIsAskedAgainWhenItSaidAndNotBefore) {
  FakeServer fake;
  fake.retry_after = "200";
  fake.before = FakeServer::FailFirst(3, "Push", grpc::StatusCode::RESOURCE_EXHAUSTED);
  Client client = Connect(fake);
  const auto begin = steady_clock::now();
  ASSERT_TRUE(PushOne(client).ok());
  EXPECT_GE(steady_clock::now() - begin, milliseconds(600)) << "three times 200 ms";
  EXPECT_EQ(fake.pushes().size(), 4U);
  EXPECT_EQ(fake.calls("GetTopology"), 1) << "a busy server is not lost";
}

// A call of one message, of several, and the one that connects: whatever the client adds to a refusal's
// sentence, the time stays.
TEST_F(RetryTest, ABusyServerIsNotWaitedForPastTheDeadlineAndItsTimeReachesEveryCaller) {
  FakeServer fake(1, 20'000);
  fake.retry_after = "4000000";
  Client client = Connect(fake, std::chrono::hours(1));  // so a client that waits hangs
  ASSERT_TRUE(PushOne(client).ok());                     // which knows the table from now on
  fake.before = [](std::size_t, const std::string& method, const auto&) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "busy with " + method);
  };
  const auto expect = [](const Status& status, const std::string& said) {
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << said;
    EXPECT_EQ(status.retry_after(), milliseconds(4'000'000)) << said;
    EXPECT_THAT(status.message(), HasSubstr(said));
  };
  const std::vector<float> values(2 * large_.size());
  expect(PushOne(client).status(), "no answer from ");
  EXPECT_EQ(fake.pushes().size(), 2U);
  expect(client.Erase("ads", one_).status(), "busy with Erase");
  expect(client.Erase("ads", large_).status(),
         "of the 17000 rows, which took several messages, 0 were erased");
  expect(client.Import("ads", {.keys = one_, .values = std::span(values).first(2), .state = {}}).status(),
         "busy with Import");
  expect(client.Import("ads", {.keys = large_, .values = values, .state = {}}).status(),
         "messages, 0 were written");
  expect(Client::Connect({fake.addresses()[0]}, {.timeout = std::chrono::hours(1)}).status(),
         "cannot connect: ");
}

TEST_F(RetryTest, WhatIsRefusedWithoutATimeIsNotSentAgain) {
  for (const char* said : {"", "0", "-1", "soon", "5x", "99999999999999"}) {
    FakeServer fake;
    fake.retry_after = said;
    fake.before = FakeServer::FailFirst(1, "Push", grpc::StatusCode::RESOURCE_EXHAUSTED);
    Client client = Connect(fake);
    const auto step = PushOne(client);
    EXPECT_EQ(step.status().code(), StatusCode::kResourceExhausted) << said;
    EXPECT_EQ(step.status().retry_after().count(), 0) << said;
    EXPECT_EQ(fake.pushes().size(), 1U) << said;
  }
}

TEST_F(RetryTest, APushGoesOnAtTheRanksOfANewStart) {
  FakeServer old;
  FakeServer started_again(3);
  Client client = Connect(old);
  ASSERT_TRUE(PushOne(client).ok());
  old.before = FakeServer::FailFirst(1'000'000, "Push", grpc::StatusCode::UNAVAILABLE);
  old.SayThatItIs(2, started_again.addresses());
  const auto step = PushOne(client);
  ASSERT_TRUE(step.ok()) << step.status().message();
  ASSERT_EQ(started_again.pushes().size(), 1u);
  EXPECT_EQ(started_again.pushes()[0].request.step().number(), 2u);
  EXPECT_EQ(started_again.pushes()[0].request.SerializeAsString(),
            old.pushes()[1].request.SerializeAsString());
  // The second try went to the other old rank, or already to a new one.
  const std::size_t at_old = old.pushes().size();
  ASSERT_TRUE(PushOne(client).ok());
  EXPECT_EQ(old.pushes().size(), at_old);
}

TEST_F(RetryTest, AStartThatAllKnowOfChangesNothing) {
  FakeServer fake;
  FakeServer stranger;
  Client client = Connect(fake);
  fake.SayThatItIs(1, stranger.addresses());  // the server instance that it was connected to
  fake.before = FakeServer::FailFirst(3, "Push", grpc::StatusCode::UNAVAILABLE);
  ASSERT_TRUE(PushOne(client).ok());
  fake.AwaitCalls("GetTopology", 2);
  ASSERT_TRUE(PushOne(client).ok());
  EXPECT_EQ(stranger.pushes().size(), 0u);
}

TEST_F(RetryTest, AClientThatIsToldOfANewStartMovesAndKeepsToTheNewLimits) {
  FakeServer old;
  FakeServer started_again(3, 20'000);
  Client client = Connect(old);
  started_again.SayThatItIs(2, started_again.addresses());
  old.SayThatItIs(2, started_again.addresses(), 20'000);
  EXPECT_EQ(client.Topology()->ranks.size(), 3u);
  ASSERT_TRUE(PushOne(client).ok());
  EXPECT_EQ(old.pushes().size(), 0u);
  const std::vector<Key> keys(large_.begin(), large_.begin() + 5000);
  const Status status = LookUp(client, keys);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_GT(started_again.lookups().size(), 2U) << "of 40 kB in requests of at most 20";
}

// A caller that has asked for the ranks uses them, also if another thread is just learning of the new start.
TEST_F(RetryTest, ACallerThatIsToldOfAKnownStartHasMovedToo) {
  FakeServer old;
  FakeServer started_again(3);
  std::promise<void> told;
  std::promise<void> go_on;
  auto client = Client::Connect({old.addresses().front()}, {.log = [&](std::string_view line) {
                                  if (line.find("started again") == std::string_view::npos) return;
                                  told.set_value();
                                  go_on.get_future().wait();
                                }});
  ASSERT_TRUE(client.ok());
  old.SayThatItIs(2, started_again.addresses());
  started_again.SayThatItIs(2, started_again.addresses());
  std::thread first([&] { EXPECT_TRUE(client->Topology().ok()); });
  told.get_future().wait();
  EXPECT_EQ(client->Topology()->ranks.size(), 3u);
  EXPECT_TRUE(PushOne(*client).ok());
  EXPECT_EQ(old.pushes().size(), 0u);
  go_on.set_value();
  first.join();
}

// A new start may answer at the old addresses before the client has missed the old one.
TEST_F(RetryTest, ACallerWithAnAnswerOfANewStartKnowsItsRanks) {
  for (const bool push : {false, true}) {
    FakeServer old;
    FakeServer more;
    Client client = Connect(old);
    ASSERT_TRUE(PushOne(client).ok());
    ASSERT_TRUE(LookUp(client, one_).ok());
    std::vector<std::string> addresses = more.addresses();
    addresses.push_back(old.addresses()[1]);
    for (FakeServer* const server : {&old, &more}) {
      server->SayThatItIs(2, addresses);
      server->before = [](std::size_t, const std::string& method, const auto&) {
        if (method == "GetTopology") std::this_thread::sleep_for(milliseconds(200));
        return grpc::Status::OK;
      };
    }
    ASSERT_TRUE(push ? PushOne(client).ok() : LookUp(client, one_).ok());
    const std::size_t at_more = more.pushes().size() + more.lookups().size();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(push ? PushOne(client).ok() : LookUp(client, one_).ok());
    ASSERT_EQ(more.pushes().size() + more.lookups().size() - at_more, 2U) << "one to each of three ranks";
    old.AwaitCalls("GetTopology", 1 + 2);
    EXPECT_EQ(old.calls("GetTopology") + more.calls("GetTopology"), 1 + 2) << "asked once more, at each rank";
  }
}

// A call that learns no ranks has its answer all the same, and the next call asks again.
TEST_F(RetryTest, AnAnswerOfANewStartThatSaysNoRanksIsAnAnswer) {
  FakeServer fake;
  std::atomic<int> met = 0;
  Client client = Connect(fake, {.log = CountStarts(met)});
  fake.SayThatItIs(2, fake.addresses());
  fake.before = FakeServer::FailFirst(2, "GetTopology", grpc::StatusCode::UNAVAILABLE);
  ASSERT_TRUE(PushOne(client).ok());
  EXPECT_EQ(met, 0) << "both ranks refused to say";
  ASSERT_TRUE(PushOne(client).ok());
  EXPECT_EQ(met, 1);
}

// Calls wait for the same questions, each until its own deadline, or until it is cancelled.
TEST_F(RetryTest, ACallThatWaitsForANewStartsRanksEndsWithoutTheOthers) {
  struct Case {
    bool begins;  // the call that ends early asks, or joins another
    bool is_cancelled;
  };
  for (const Case& c : {Case{false, false}, Case{true, false}, Case{true, true}}) {
    FakeServer fake;
    std::atomic<int> met = 0;
    Client client = Connect(fake, {.timeout = seconds(600), .log = CountStarts(met)});
    const int before = fake.calls("GetTopology");
    fake.SayThatItIs(2, fake.addresses());
    fake.before = fake.HangIn("GetTopology");
    std::stop_source stop;
    const auto call = [&](bool ends_early, std::vector<float>& rows) {
      CallOptions options;
      if (ends_early && c.is_cancelled) options.stop = stop.get_token();
      if (ends_early && !c.is_cancelled) options.timeout = seconds(2);
      return LookupLater(client, "ads", {one_, {}}, LookupMode::kTrain, rows, options);
    };
    std::vector<float> out(2);
    out_.resize(2);
    auto first = call(c.begins, out);
    fake.AwaitCalls("GetTopology", before + 2);
    auto second = call(!c.begins, out_);
    if (c.is_cancelled) stop.request_stop();
    std::future<Status>& early = c.begins ? first : second;
    std::future<Status>& patient = c.begins ? second : first;
    EXPECT_TRUE(early.get().ok()) << "it was answered before";
    EXPECT_EQ(patient.wait_for(seconds(0)), std::future_status::timeout);
    EXPECT_EQ(met, 0);
    EXPECT_EQ(fake.calls("GetTopology"), before + 2) << "one question to each rank was enough for both calls";
    fake.Release();
    EXPECT_TRUE(patient.get().ok());
    EXPECT_EQ(met, 1);
  }
}

// Sixteen ranks at most are asked: the one that has answered is one of them.
TEST_F(RetryTest, TheRankThatHasAnsweredAsANewStartIsAskedForItsRanks) {
  constexpr std::size_t kLast = 16;
  FakeServer fake(kLast + 1);
  std::atomic<int> met = 0;
  Client client = Connect(fake, {.timeout = seconds(600), .log = CountStarts(met)});
  for (std::size_t rank = 0; rank < kLast; ++rank) ASSERT_TRUE(LookUp(client, one_).ok());
  fake.SayThatItIs(2, fake.addresses());
  fake.before = [&fake](std::size_t rank, const std::string& method, const auto&) {
    if (method == "GetTopology" && rank != kLast) fake.Hang();
    return grpc::Status::OK;
  };
  ASSERT_TRUE(LookUp(client, one_).ok());
  EXPECT_EQ(fake.lookups().back().rank, kLast);
  EXPECT_EQ(met, 1);
}

// A rank of the start that is known already says nothing new.
TEST_F(RetryTest, ACallWaitsForTheRankThatKnowsTheNewStart) {
  FakeServer fake(1);
  FakeServer still_there(1);
  const std::vector<std::string> both{fake.addresses()[0], still_there.addresses()[0]};
  fake.SayThatItIs(1, both);
  still_there.SayThatItIs(1, both);
  std::atomic<int> met = 0;
  Client client = Connect(fake, {.log = CountStarts(met)});
  fake.SayThatItIs(2, both);
  fake.before = [&still_there](std::size_t, const std::string& method, const auto&) {
    if (method != "GetTopology") return grpc::Status::OK;
    still_there.AwaitCalls("GetTopology", 1);
    std::this_thread::sleep_for(milliseconds(200));  // so the other answer comes first
    return grpc::Status::OK;
  };
  ASSERT_TRUE(LookUp(client, one_).ok());
  EXPECT_EQ(met, 1);
}

TEST_F(RetryTest, AClientThatLearnsOfANewStartIsClosed) {
  FakeServer fake;
  std::vector<float> out(2);
  std::future<Status> answer;
  {
    Client client = Connect(fake, {.timeout = seconds(600)});
    const int before = fake.calls("GetTopology");
    fake.SayThatItIs(2, fake.addresses());
    fake.before = fake.HangIn("GetTopology");
    answer = LookupLater(client, "ads", {one_, {}}, LookupMode::kTrain, out);
    fake.AwaitCalls("GetTopology", before + 2);
  }
  ASSERT_EQ(answer.wait_for(seconds(0)), std::future_status::ready);
  EXPECT_TRUE(answer.get().ok()) << "it was answered before";
}

TEST_F(RetryTest, APushOfAForgottenSessionIsSentAgainUnderANewOne) {
  for (const std::vector<Key>& keys : {one_, large_}) {  // of one part, and of two
    FakeServer fake;
    fake.before = FakeServer::ForgetSessions(1);
    Client client = Connect(fake);
    const std::uint64_t forgotten = client.session().id();
    fake.epoch = 3;
    const auto step = client.Push("ads", {keys, {}}, std::vector<float>(2 * keys.size(), 1));
    ASSERT_TRUE(step.ok()) << step.status().message();
    EXPECT_NE(client.session().id(), forgotten);
    EXPECT_EQ(client.session().epoch(), 3u);
    std::size_t renewed = 0;
    for (const auto& push : fake.pushes()) {
      const auto& id = push.request.step();
      EXPECT_EQ(id.number(), 1u);
      if (id.session() == forgotten) continue;
      ++renewed;
      EXPECT_EQ(id.session(), client.session().id());
      EXPECT_EQ(id.epoch(), 3u);
    }
    EXPECT_EQ(renewed, fake.pushes().back().request.step().parts());
  }
}

// A try without an answer may have been applied, and then forgotten.
TEST_F(RetryTest, APushThatMayHaveArrivedOrWasRenewedIsNotSentUnderANewSession) {
  for (const bool may_have_arrived : {true, false}) {
    FakeServer fake;
    std::atomic<int> tries{0};
    fake.before = [&, forget = FakeServer::ForgetSessions(may_have_arrived ? 1 : 2)](
                      std::size_t rank, const std::string& method, const google::protobuf::Message& request) {
      const bool cut_off = may_have_arrived && method == "Push" && tries++ == 0;
      return cut_off ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut off") : forget(rank, method, request);
    };
    Client client = Connect(fake);
    const std::uint64_t forgotten = client.session().id();
    fake.epoch = 3;
    const auto step = PushOne(client);
    EXPECT_EQ(step.status().code(), StatusCode::kFailedPrecondition) << step.status().message();
    EXPECT_EQ(fake.pushes().size(), 2u);
    EXPECT_NE(client.session().id(), forgotten) << "the next push has a session that the server may know";
    ASSERT_TRUE(PushOne(client).ok());
  }
}

TEST_F(RetryTest, AForgottenSessionsStepThatTheCallerNamedIsNotSentUnderAnotherName) {
  FakeServer fake;
  fake.before = FakeServer::ForgetSessions(2);
  Client client = Connect(fake);
  const std::vector<float> ones{1, 1};
  const std::uint64_t own = client.session().id();
  const Step of_another{.session = 9, .number = 1};
  EXPECT_EQ(client.Push("ads", {one_, {}}, ones, of_another).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(client.session().id(), own);
  EXPECT_EQ(client.Push("ads", {one_, {}}, ones, client.session().Next()).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_NE(client.session().id(), own) << "the session's next step is of one that the server may know";
  EXPECT_EQ(fake.pushes().size(), 2u);
}

TEST_F(RetryTest, OnlyThePartThatFailedIsSentAgain) {
  FakeServer fake;
  fake.before = FakeServer::FailFirst(1, "Lookup", grpc::StatusCode::UNAVAILABLE);
  Client client = Connect(fake);
  ASSERT_TRUE(LookUp(client, large_).ok());
  ExpectValues(large_);
  std::set<std::string> keys;
  for (const auto& lookup : fake.lookups()) keys.insert(lookup.request.keys());
  EXPECT_EQ(fake.lookups().size(), 3u);
  EXPECT_EQ(keys.size(), 2u);
}

TEST_F(RetryTest, NeighbouringPartsGoToTheSameRankAndTheRanksAreInOrder) {
  for (const std::uint64_t max_message_bytes : {64 << 20, 20'000}) {
    FakeServer fake(2, max_message_bytes);
    Client client = Connect(fake);
    ASSERT_TRUE(LookUp(client, large_).ok());
    auto lookups = fake.lookups();
    if (max_message_bytes == 20'000) {
      ASSERT_GT(lookups.size(), 4u);
    } else {
      ASSERT_EQ(lookups.size(), 2u);
    }
    std::ranges::sort(lookups, {}, [](const auto& lookup) {
      std::uint64_t first_key = 0;
      std::memcpy(&first_key, lookup.request.keys().data(), sizeof(first_key));
      return first_key;
    });
    EXPECT_TRUE(std::ranges::is_sorted(lookups, {}, [](const auto& lookup) { return lookup.rank; }));
    EXPECT_NE(lookups.front().rank, lookups.back().rank);
    std::string keys;
    for (const auto& lookup : lookups) keys += lookup.request.keys();
    EXPECT_EQ(keys, BytesOf(large_));
  }
}

TEST_F(RetryTest, BatchesOfOnePartTakeTurns) {
  FakeServer fake;
  Client client = Connect(fake);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(LookUp(client, one_).ok());
  const auto lookups = fake.lookups();
  EXPECT_EQ(std::ranges::count(lookups, std::size_t{0}, [](const auto& lookup) { return lookup.rank; }), 2);
}

TEST_F(RetryTest, BatchesOfFewerPartsThanRanksTakeTurnsInRankOrder) {
  FakeServer fake(3);
  Client client = Connect(fake);
  const std::vector<float> gradients(2 * large_.size(), 1.0F);
  std::vector<std::pair<std::size_t, std::size_t>> pushed;  // the ranks of part 0 and part 1
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Push("ads", {large_, {}}, gradients).ok());
    const auto all = fake.pushes();
    ASSERT_EQ(all.size(), 2U * static_cast<std::size_t>(i + 1));
    const auto& one = all[all.size() - 2];
    const auto& other = all.back();
    const bool in_order = one.request.step().part() == 0;
    pushed.emplace_back((in_order ? one : other).rank, (in_order ? other : one).rank);
  }
  EXPECT_EQ(pushed, (std::vector<std::pair<std::size_t, std::size_t>>{{0, 1}, {0, 2}, {1, 2}}));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(LookUp(client, large_).ok());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const auto lookups = fake.lookups();
    EXPECT_EQ(std::ranges::count(lookups, rank, [](const auto& lookup) { return lookup.rank; }), 2);
  }
}

TEST_F(RetryTest, RequestsStayBelowWhatTheServerTakes) {
  FakeServer fake(1, 20'000);
  Client client = Connect(fake);
  std::vector<Key> keys(large_.begin(), large_.begin() + 5000);
  ASSERT_TRUE(LookUp(client, keys).ok());
  ExpectValues(keys);
  EXPECT_GT(fake.lookups().size(), 1u);
  const auto step = client.Push("ads", {keys, {}}, out_);
  ASSERT_TRUE(step.ok()) << step.status().message();
  std::vector<std::uint32_t> parts;
  for (const auto& push : fake.pushes()) {
    EXPECT_LE(push.request.ByteSizeLong(), 20'000u);
    EXPECT_EQ(push.request.step().parts(), fake.pushes().size());
    parts.push_back(push.request.step().part());
  }
  std::ranges::sort(parts);
  std::vector<std::uint32_t> expected(parts.size());
  std::iota(expected.begin(), expected.end(), 0u);
  EXPECT_EQ(parts, expected);
}

TEST_F(RetryTest, APushOfMorePartsThanAStepMayHaveIsRefusedBeforeItIsSent) {
  FakeServer fake(1, 64);  // room for no more than a sample a request
  Client client = Connect(fake, seconds(10));
  const std::vector<Key> keys(70'000);
  const auto step = client.Push("ads", {keys, {}}, std::vector<float>(140'000));
  EXPECT_EQ(step.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(step.status().message(), HasSubstr("cut into 70000 parts"));
  EXPECT_EQ(fake.calls("Push"), 0);
}

// What decides is whether there is a reason, not what is said.
TEST_F(RetryTest, AServerThatReceivesTooMuchIsTriedAgain) {
  for (const bool gives_reasons : {true, false}) {
    FakeServer fake;
    fake.gives_reasons = gives_reasons;
    fake.before = FakeServer::FailFirst(2, "Push", grpc::StatusCode::RESOURCE_EXHAUSTED);
    Client client = Connect(fake);
    const auto step = PushOne(client);
    EXPECT_EQ(step.status().code(), gives_reasons ? StatusCode::kOk : StatusCode::kResourceExhausted);
    EXPECT_EQ(fake.pushes().size(), gives_reasons ? 3u : 1u) << "an older server's refusals have no reason";
  }
}

TEST_F(RetryTest, ARefusalWithAReasonIsNotTriedAgain) {
  FakeServer fake;
  fake.gives_reasons = true;
  fake.before = [](std::size_t, const std::string& called, const google::protobuf::Message&) {
    if (called != "Push") return grpc::Status::OK;
    return FakeServer::Refusal(ResourceExhausted("full").Because(Reason::kTableFull));
  };
  Client client = Connect(fake);
  const auto step = PushOne(client);
  EXPECT_EQ(step.status(), ResourceExhausted("full").Because(Reason::kTableFull));
  EXPECT_EQ(fake.pushes().size(), 1u);
}

// gRPC's refusal of it would have no reason, and it would be sent until the timeout.
TEST_F(RetryTest, AMessageThatIsLargerThanTheServerTakesIsNotSent) {
  FakeServer fake(1, 100);
  Client client = Connect(fake);
  const std::string name(255, 'a');
  const Status status = client.DropTable(name);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.reason(), Reason::kTooLarge);
  EXPECT_NE(status.message().find("a request has 258 bytes, more than the 100 of limits.max_message_mib"),
            std::string::npos)
      << status.message();
  EXPECT_EQ(fake.calls("DropTable"), 0);
}

TEST_F(RetryTest, ARankThatIsGoneIsReplacedByAnother) {
  FakeServer fake;
  Client client = Connect(fake);
  fake.StopRank(1);
  for (int i = 0; i < 3; ++i) {
    const Status status = LookUp(client, large_);
    ASSERT_TRUE(status.ok()) << status.message();
    ExpectValues(large_);
  }
}

TEST_F(RetryTest, ADefiniteErrorEndsThePushAtOnceAndCancelsItsOtherParts) {
  FakeServer fake;
  fake.before = [](std::size_t, const std::string& method, const google::protobuf::Message& request) {
    const auto* push = method == "Push" ? dynamic_cast<const v1::PushRequest*>(&request) : nullptr;
    return push != nullptr && push->step().part() == 1
               ? grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "gradients[3] is nan")
               : grpc::Status::OK;
  };
  // Part 0 waits for part 1, so the test would hang if the error did not cancel it.
  Client client = Connect(fake, seconds(600));
  const std::vector<float> gradients(large_.size() * 2);
  const auto step = client.Push("ads", {large_, {}}, gradients);
  EXPECT_EQ(step.status(), InvalidArgument("gradients[3] is nan"));
  const auto pushes = fake.pushes();
  EXPECT_EQ(std::ranges::count_if(pushes, [](const auto& push) { return push.request.step().part() == 1; }),
            1);
}

TEST_F(RetryTest, ErrorsKeepTheirCodeAndMessage) {
  const std::pair<grpc::StatusCode, StatusCode> codes[] = {
      {grpc::StatusCode::RESOURCE_EXHAUSTED, StatusCode::kResourceExhausted},
      {grpc::StatusCode::FAILED_PRECONDITION, StatusCode::kFailedPrecondition},
      {grpc::StatusCode::NOT_FOUND, StatusCode::kNotFound},
      {grpc::StatusCode::ALREADY_EXISTS, StatusCode::kAlreadyExists},
      {grpc::StatusCode::UNIMPLEMENTED, StatusCode::kFailedPrecondition},
      {grpc::StatusCode::DATA_LOSS, StatusCode::kDataLoss},
      {grpc::StatusCode::ABORTED, StatusCode::kInternal},
  };
  for (const auto& [grpc_code, code] : codes) {
    FakeServer fake;
    fake.before = FakeServer::FailFirst(1, "Lookup", grpc_code);
    Client client = Connect(fake);
    const Status status = LookUp(client, one_);
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(status.message(), HasSubstr("as the test wishes"));
  }
}

TEST_F(RetryTest, AServerThatStaysUnavailableIsGivenUpInTime) {
  FakeServer fake;
  fake.before = FakeServer::FailFirst(1'000'000, "ListTables", grpc::StatusCode::UNAVAILABLE);
  Client client = Connect(fake);
  const auto tables = client.ListTables({.timeout = seconds(1)});
  // The deadline may also come while a try is under way.
  EXPECT_THAT(tables.status().code(),
              testing::AnyOf(StatusCode::kUnavailable, StatusCode::kDeadlineExceeded));
  EXPECT_THAT(tables.status().message(), HasSubstr(" within 1 s: as the test wishes"));
  EXPECT_GT(fake.calls("ListTables"), 1);
}

TEST_F(RetryTest, AServerThatNeverAnswersIsGivenUpInTime) {
  FakeServer fake;
  Client client = Connect(fake);
  ASSERT_TRUE(LookUp(client, one_).ok());
  fake.before = fake.HangIn("Lookup");
  const CallOptions brief{.timeout = milliseconds(500)};
  const Status status = LookUp(client, one_, brief);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("within 0.5 s"));
  // A call that gives up asks for no table again: many that do would keep the others waiting.
  EXPECT_EQ(LookUp(client, one_, brief).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(fake.calls("DescribeTable"), 1);
}

TEST_F(RetryTest, ATryThatTheDeadlineEndsTellsWhyTheTryBeforeFailed) {
  FakeServer fake;
  Client client = Connect(fake);
  ASSERT_TRUE(LookUp(client, one_).ok());
  std::atomic<bool> failed = false;
  fake.before = [&](std::size_t, const std::string& method, const auto&) {
    if (method != "Lookup") return grpc::Status::OK;
    if (!failed.exchange(true)) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "as the test wishes");
    fake.Hang();
    return grpc::Status::OK;
  };
  const Status status = LookUp(client, one_, {.timeout = milliseconds(1500)});
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr(" within 1.5 s: as the test wishes"));
  EXPECT_EQ(fake.calls("Lookup"), 1 + 2);
}

TEST_F(RetryTest, AskingForATablesOptionsTakesFromTheCallsTimeout) {
  FakeServer fake;
  fake.before = [&](std::size_t, const std::string& method, const auto&) {
    if (method == "DescribeTable") std::this_thread::sleep_for(seconds(1));
    return grpc::Status::OK;
  };
  Client client = Connect(fake, seconds(20));
  EXPECT_TRUE(LookUp(client, one_).ok());
  const auto lookups = fake.lookups();
  ASSERT_EQ(lookups.size(), 1U);
  EXPECT_LE(lookups[0].left, milliseconds(19'200)) << "gRPC rounds up; a busy machine makes it less";
}

TEST_F(RetryTest, AMalformedReplyIsAnErrorThatSaysSo) {
  FakeServer fake;
  Client client = Connect(fake);
  fake.Spoil([](v1::LookupReply& reply) { reply.mutable_values()->pop_back(); });
  EXPECT_EQ(LookUp(client, one_).code(), StatusCode::kFailedPrecondition);
  fake.Spoil([](v1::LookupReply& reply) { reply.set_width(1); });
  EXPECT_EQ(LookUp(client, one_).code(), StatusCode::kFailedPrecondition);
  fake.Spoil(nullptr);
  EXPECT_TRUE(LookUp(client, one_).ok());
  EXPECT_EQ(fake.calls("DescribeTable"), 3) << "after an error, the table's options are asked for again";
}

TEST_F(RetryTest, AClientThatIsDestroyedAnswersWhatIsInFlightOrInTheMiddleOfAWait) {
  for (const bool waits : {false, true}) {
    FakeServer fake;
    fake.before = waits ? FakeServer::FailFirst(1'000'000, "Lookup", grpc::StatusCode::UNAVAILABLE)
                        : fake.HangIn("Lookup");
    std::vector<float> out(2);
    std::future<Status> answer;
    {
      Client client = Connect(fake, seconds(600));
      answer = LookupLater(client, "ads", {one_, {}}, LookupMode::kTrain, out);
      fake.AwaitCalls("Lookup", waits ? 3 : 1);
    }
    EXPECT_EQ(answer.get().reason(), Reason::kClientClosed);
  }
}

TEST_F(RetryTest, WhatIsInFlightHasBeenAnsweredWhenCloseReturns) {
  FakeServer fake;
  fake.before = fake.HangIn("Lookup");
  Client client = Connect(fake, seconds(600));
  std::vector<std::vector<float>> outs(50, std::vector<float>(2));
  std::vector<std::future<Status>> answers;
  for (auto& out : outs) answers.push_back(LookupLater(client, "ads", {one_, {}}, LookupMode::kTrain, out));
  fake.AwaitCalls("Lookup", 1);
  client.Close();
  for (auto& answer : answers) {
    ASSERT_EQ(answer.wait_for(seconds(0)), std::future_status::ready);
    EXPECT_EQ(answer.get().reason(), Reason::kClientClosed);
  }
}

TEST_F(RetryTest, ConnectingSaysWhereItFailed) {
  EXPECT_EQ(Client::Connect({}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Client::Connect({"127.0.0.1:1"}, {.channels_per_rank = 0}).status().code(),
            StatusCode::kInvalidArgument);
  const auto client = Client::Connect({"127.0.0.1:1"}, {.timeout = milliseconds(200)});
  EXPECT_EQ(client.status().message().find("cannot connect: no answer from 127.0.0.1:1 within 0.2 s: "), 0u)
      << client.status().message();
}

TEST_F(RetryTest, ATransportIsTakenByItsNameIn01) {
  FakeServer fake;  // speaks gRPC alone
  const auto looked_up = [&](const ClientOptions& options) {
    auto client = Client::Connect({fake.addresses()[0]}, options);
    if (!client.ok()) return client.status();
    std::vector<float> out(2);
    const std::vector<Key> keys{Key{1}};
    return client->Lookup("ads", {.keys = keys, .offsets = {}, .weights = {}}, LookupMode::kTrain, out);
  };
  EXPECT_EQ(looked_up({.door = Door::kGrpc}), Status());
  EXPECT_EQ(looked_up({.timeout = milliseconds(200), .door = Door::kShm}).code(), StatusCode::kUnavailable);
  test::ExpectStatus(looked_up({.transport = TransportKind::kTcp, .door = Door::kGrpc}),
                     StatusCode::kInvalidArgument,
                     "transport and door are two names of one option: give transport alone");
}

TEST_F(RetryTest, ASecondAddressIsTriedWhenTheFirstIsGone) {
  FakeServer fake;
  const auto client = Client::Connect({"127.0.0.1:1", fake.addresses()[1]});
  EXPECT_TRUE(client.ok()) << client.status().message();
}

}  // namespace
}  // namespace slotwise
