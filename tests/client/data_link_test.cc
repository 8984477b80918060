// Tests how calls on a data connection end when memory, the peer or a call fails.
#include "client/cpp/data_link.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "tests/client/peer.h"
#include "wire/status_code.h"

namespace slotwise::client {
namespace {

class DataLinkTest : public ::testing::Test {
 protected:
  std::future<Outcome> Send(std::shared_ptr<FakeExchange> exchange = std::make_shared<FakeExchange>(),
                            std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
    SentCall sent = SendBy(*link_, std::move(exchange), timeout);
    cancel_ = std::move(sent.cancel);
    ++last_;
    return std::move(sent.outcome);
  }

  // Answers the next call, with what `reply` says, and returns its name.
  std::uint64_t AnswerNext(v1::DataReply reply = {}, const std::string& body = {}) {
    reply.set_id(peer_.Take().id());
    peer_.Answer(reply, body);
    return reply.id();
  }
  // Expects that a call is answered as it should be, whatever became of those before.
  void ExpectThatTheNextOneGoesOn() {
    std::future<Outcome> next = Send();
    EXPECT_EQ(AnswerNext(), last_);
    const Outcome answered = next.get();
    EXPECT_EQ(answered.code, StatusCode::kOk);
    EXPECT_TRUE(answered.read.ok());
  }

  Peer peer_;
  DataThreads threads_{1};
  std::unique_ptr<DataLink> link_ =
      std::make_unique<DataLink>(threads_, RankAddress{.address = peer_.address()});
  std::uint64_t last_ = 0;  // the newest call's name, which are 1, 2, ...
  Transport::Cancel cancel_;
};

TEST_F(DataLinkTest, ACallThatFindsNoMemoryIsAnsweredAndTheNextOneGoesOn) {
  link_->Connect();
  peer_.Meet();
  const auto poor = std::make_shared<FakeExchange>();
  poor->no_memory = true;
  const Outcome refused = Send(poor).get();
  EXPECT_EQ(refused.code, StatusCode::kOk) << "the server has said nothing";
  EXPECT_EQ(refused.read.code(), StatusCode::kResourceExhausted);
  ExpectThatTheNextOneGoesOn();
}

TEST_F(DataLinkTest, CallsThatAreUnderWayEndWithTheirConnectionAndLaterOnesConnectAgain) {
  std::future<Outcome> first = Send();
  peer_.Meet();
  EXPECT_EQ(peer_.Take().id(), last_);
  peer_.Hang();
  EXPECT_EQ(first.get().code, StatusCode::kUnavailable);
  std::future<Outcome> second = Send();
  peer_.Meet();
  v1::DataReply refusal;
  refusal.set_code(WireCode(StatusCode::kNotFound));
  refusal.set_message("no table");
  AnswerNext(refusal);
  const Outcome answered = second.get();
  EXPECT_EQ(answered.code, StatusCode::kNotFound);
  EXPECT_EQ(answered.message, "no table");
}

TEST_F(DataLinkTest, CallsEndInTimeThoughTheServerDoesNotAnswer) {
  std::future<Outcome> late = Send(std::make_shared<FakeExchange>(), std::chrono::milliseconds(20));
  peer_.Meet();
  EXPECT_EQ(late.get().code, StatusCode::kDeadlineExceeded);
  std::future<Outcome> given_up = Send();
  const std::uint64_t name = last_;
  v1::DataReply reply;
  // The late call may have come, or not, and then this one comes alone.
  do {
    reply.set_id(peer_.Take().id());
  } while (reply.id() != name);
  cancel_();
  EXPECT_EQ(given_up.get().code, StatusCode::kCancelled);
  peer_.Answer(reply);  // too late: no call waits for it
  ExpectThatTheNextOneGoesOn();
}

TEST_F(DataLinkTest, AReplyThatDoesNotFitIsAnErrorOfItsCallAlone) {
  std::future<Outcome> call = Send();
  peer_.Meet();
  AnswerNext({}, "values that were not asked for");
  const Outcome answered = call.get();
  EXPECT_EQ(answered.code, StatusCode::kOk);
  EXPECT_EQ(answered.read.code(), StatusCode::kInternal);
  ExpectThatTheNextOneGoesOn();
}

TEST_F(DataLinkTest, AReplyInAnSharedBufferThatThereIsNotEndsItsCallAlone) {
  std::future<Outcome> call = Send();
  peer_.Meet();
  v1::DataReply reply;
  reply.set_in_shared_buffer(true);
  AnswerNext(reply);
  EXPECT_EQ(call.get().code, StatusCode::kUnavailable);
  ExpectThatTheNextOneGoesOn();
}

// The server writes a call's values though its caller has given it up: no other call may have their place.
TEST(ADataLinkWithAnSharedBuffer, KeepsACallsPlacesUntilItIsAnswered) {
  const std::string name = "slotwise-test-link-" + std::to_string(getpid());
  Peer peer(name);
  DataThreads threads(1);
  DataLink link(threads, RankAddress{.address = "127.0.0.1:1", .local = name});
  const auto send = [&link] {
    auto exchange = std::make_shared<FakeExchange>();
    exchange->value_bytes = 8192;
    return SendBy(link, std::move(exchange));
  };
  SentCall given_up = send();
  peer.Meet();
  const v1::DataCall late = peer.Take();
  ASSERT_EQ(late.allocations().values_bytes(), 8192U);
  given_up.cancel();
  EXPECT_EQ(given_up.outcome.get().code, StatusCode::kCancelled);

  SentCall second = send();
  const v1::DataCall beside = peer.Take();
  EXPECT_NE(beside.allocations().values(), late.allocations().values());
  peer.Answer(late.id());
  peer.Answer(beside.id());
  EXPECT_EQ(second.outcome.get().code, StatusCode::kOk);

  SentCall third = send();
  const v1::DataCall after = peer.Take();
  EXPECT_EQ(after.allocations().values(), late.allocations().values()) << "it is answered, though late";
  peer.Answer(after.id());
  EXPECT_EQ(third.outcome.get().code, StatusCode::kOk);
}

// No process has the name on this host: then the rank is on another.
TEST_F(DataLinkTest, GoesByTcpWhereNoServerListensAtTheUnixSocket) {
  link_ = std::make_unique<DataLink>(
      threads_, RankAddress{.address = peer_.address(), .local = "slotwise-test-absent"});
  std::future<Outcome> call = Send();
  peer_.Meet();
  AnswerNext();
  EXPECT_EQ(call.get().code, StatusCode::kOk);

  link_ = std::make_unique<DataLink>(
      threads_, RankAddress{.address = peer_.address(), .local = "slotwise-test-absent", .only_local = true});
  const Outcome outcome = Send().get();
  EXPECT_EQ(outcome.code, StatusCode::kUnavailable);
  EXPECT_NE(outcome.message.find("on this host"), std::string::npos) << outcome.message;
}

TEST_F(DataLinkTest, APeerOfAnotherVersionIsNoConnection) {
  std::future<Outcome> call = Send();
  peer_.Meet(kDataVersion + 1);
  const Outcome outcome = call.get();
  EXPECT_EQ(outcome.code, StatusCode::kUnavailable);
  EXPECT_NE(outcome.message.find("version"), std::string::npos) << outcome.message;
  EXPECT_FALSE(link_->connected());
}

TEST_F(DataLinkTest, ALinkThatGoesWhileItConnectsEndsQuietly) {
  std::future<Outcome> call = Send(std::make_shared<FakeExchange>(), std::chrono::milliseconds(20));
  EXPECT_EQ(call.get().code, StatusCode::kDeadlineExceeded);  // it was not accepted
  link_.reset();
}

}  // namespace
}  // namespace slotwise::client
