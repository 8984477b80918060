// Tests the order of calls through a device's memory, what a resent call contains, and when their allocations
// are freed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "client/cpp/data_link.h"
#include "tests/client/peer.h"
#include "wire/status_code.h"

namespace slotwise::client {
namespace {

// More than half of what the peer shares: two calls do not have it at once.
constexpr std::uint64_t kMostOfTheSharedBuffer = 600U << 10;

class DeviceExchange final : public FakeExchange {
 public:
  explicit DeviceExchange(std::string arrays) : arrays_(std::move(arrays)) {}

  void Write(v1::DataCall& /*call*/, Body& body) override {
    body.push_back(std::as_bytes(std::span(arrays_)));
  }
  OnDevice* on_device() override { return &of; }
  void TakeValues(std::shared_ptr<std::byte[]>&& taken) override { values = std::move(taken); }

  // The caller writes its arrays.
  void Overwrite() { arrays_.assign(arrays_.size(), 'x'); }

  OnDevice of;
  std::shared_ptr<std::byte[]> values;

 private:
  std::string arrays_;
};

class GpuLinkTest : public ::testing::Test {
 protected:
  struct Sent : SentCall {
    std::shared_ptr<DeviceExchange> exchange;
    std::uint64_t id = 0;
  };

  // Sends a push, whose turn ends as the client's does.
  Sent Push(const std::string& arrays) {
    auto push = std::make_shared<DeviceExchange>(arrays);
    push->of.turn = std::make_shared<Turn>();
    return Send(push);
  }
  Sent Lookup(const std::shared_ptr<Turn>& behind, std::uint64_t value_bytes = 128,
              std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
    auto lookup = std::make_shared<DeviceExchange>("keys");
    lookup->value_bytes = value_bytes;
    lookup->of.behind = behind;
    return Send(lookup, timeout);
  }
  Sent Send(const std::shared_ptr<DeviceExchange>& exchange,
            std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
    return {SendBy(link_, exchange, timeout), exchange, ++last_};
  }
  // Sends a push, which the peer has taken and not answered.
  Sent PushUnderWay() {
    Sent push = Push("gradients");
    peer_.Meet();
    EXPECT_EQ(peer_.Take().id(), push.id);
    return push;
  }
  // Expects that the call is the next one that comes, and is answered.
  void ExpectServed(Sent& call) {
    EXPECT_EQ(peer_.Take().id(), call.id);
    Answer(call.id);
    EXPECT_EQ(call.outcome.get().code, StatusCode::kOk);
  }
  void Answer(std::uint64_t id, StatusCode code = StatusCode::kOk) {
    v1::DataReply reply;
    reply.set_id(id);
    reply.set_code(WireCode(code));
    reply.set_in_shared_buffer(true);
    peer_.Answer(reply);
  }
  // A connection sends calls in the order in which they may be sent. So what it has not sent before this one
  // it holds.
  void ExpectNothingBeforeAnother() {
    Sent another = Lookup(nullptr);
    ExpectServed(another);
  }

  const std::string name_ = "slotwise-test-gpu-link-" + std::to_string(getpid());
  Peer peer_{name_, true};
  std::uint64_t last_ = 0;  // the newest call's name, which are 1, 2, ...
  DataThreads threads_{1};
  DataLink link_{threads_, RankAddress{.address = "127.0.0.1:1",
                                       .local = name_,
                                       .gpu = std::string(kHostMemory),
                                       .by_gpu = true,
                                       .only_gpu = true}};
};

TEST_F(GpuLinkTest, APushHasItsArraysOnceThereIsAConnection) {
  Sent push = Push("gradients");
  EXPECT_FALSE(push.exchange->of.turn->has_arrays());
  peer_.Meet();
  const v1::DataCall call = peer_.Take();
  EXPECT_TRUE(push.exchange->of.turn->has_arrays());
  push.exchange->Overwrite();
  EXPECT_EQ(peer_.ArraysOf(call).substr(0, 9), "gradients");
  Answer(call.id());
  EXPECT_EQ(push.outcome.get().code, StatusCode::kOk);
}

TEST_F(GpuLinkTest, ALookupBehindAPushIsSentOnceThatIsAnswered) {
  Sent push = PushUnderWay();
  Sent behind = Lookup(push.exchange->of.turn);
  Sent too = Lookup(push.exchange->of.turn);
  ExpectNothingBeforeAnother();
  Answer(push.id);
  EXPECT_EQ(push.outcome.get().code, StatusCode::kOk);
  EXPECT_EQ(peer_.Take().id(), behind.id);
  EXPECT_EQ(peer_.Take().id(), too.id);
  Sent later = Lookup(push.exchange->of.turn);  // which has ended
  EXPECT_EQ(peer_.Take().id(), later.id);
  for (Sent* const each : {&behind, &too, &later}) {
    Answer(each->id);
    EXPECT_EQ(each->outcome.get().code, StatusCode::kOk);
    EXPECT_NE(each->exchange->values, nullptr);
  }
}

TEST_F(GpuLinkTest, ALookupBehindAPushThatFailsIsNotSentAndHasNoPlaces) {
  Sent push = PushUnderWay();
  Sent behind = Lookup(push.exchange->of.turn, kMostOfTheSharedBuffer);
  Answer(push.id, StatusCode::kNotFound);
  EXPECT_EQ(push.outcome.get().code, StatusCode::kNotFound);
  const Outcome held = behind.outcome.get();
  EXPECT_EQ(held.code, StatusCode::kOk) << "the server has said nothing";
  EXPECT_EQ(held.read.code(), StatusCode::kCancelled);
  ExpectNothingBeforeAnother();
  Sent next = Lookup(nullptr, kMostOfTheSharedBuffer);
  EXPECT_EQ(peer_.Take().id(), next.id);
  Answer(next.id);
  EXPECT_TRUE(next.outcome.get().read.ok());
}

TEST_F(GpuLinkTest, ALookupBehindAPushEndsInTimeAndIsNotSentLater) {
  Sent push = PushUnderWay();
  Sent late = Lookup(push.exchange->of.turn, kMostOfTheSharedBuffer, std::chrono::milliseconds(20));
  EXPECT_EQ(late.outcome.get().code, StatusCode::kDeadlineExceeded);
  Sent no_room = Lookup(push.exchange->of.turn, kMostOfTheSharedBuffer);
  EXPECT_EQ(no_room.outcome.get().read.code(), StatusCode::kResourceExhausted)
      << "the late one has its places until its turn has come";
  Answer(push.id);
  EXPECT_EQ(push.outcome.get().code, StatusCode::kOk);
  ExpectNothingBeforeAnother();
  Sent given_up = Lookup(nullptr, kMostOfTheSharedBuffer);
  ASSERT_EQ(peer_.Take().id(), given_up.id) << "the late one has left its places";
  given_up.cancel();
  EXPECT_EQ(given_up.outcome.get().code, StatusCode::kCancelled);
  Answer(given_up.id);  // too late
  ExpectNothingBeforeAnother();
}

// What a busy server refused is sent again, from the same places.
TEST_F(GpuLinkTest, ACallIsSentAgainWithTheArraysThatItHadFirst) {
  Sent push = Push("gradients");
  peer_.Meet();
  const v1::DataCall first = peer_.Take();
  // The link has read the arrays by now; its lock orders that before they are overwritten.
  ASSERT_TRUE(link_.connected());
  push.exchange->Overwrite();
  Answer(first.id(), StatusCode::kUnavailable);
  EXPECT_EQ(push.outcome.get().code, StatusCode::kUnavailable);
  Sent again = Send(push.exchange);
  const v1::DataCall second = peer_.Take();
  EXPECT_EQ(second.allocations().body(), first.allocations().body());
  EXPECT_EQ(peer_.ArraysOf(second).substr(0, 9), "gradients");
  // The next connection has other memory, to which they are copied.
  peer_.Hang();
  EXPECT_EQ(again.outcome.get().code, StatusCode::kUnavailable);
  Sent anew = Send(push.exchange);
  peer_.Meet();
  const v1::DataCall third = peer_.Take();
  EXPECT_EQ(peer_.ArraysOf(third).substr(0, 9), "gradients");
  Answer(third.id());
  EXPECT_EQ(anew.outcome.get().code, StatusCode::kOk);
}

TEST_F(GpuLinkTest, MemoryIsLetGoOfWithItsConnection) {
  Sent push = PushUnderWay();
  Sent behind = Lookup(push.exchange->of.turn);
  ExpectNothingBeforeAnother();
  const std::weak_ptr<GpuSharedBuffer> shared_buffer = push.exchange->of.carried->shared_buffer;
  peer_.Hang();
  EXPECT_EQ(push.outcome.get().code, StatusCode::kUnavailable);
  EXPECT_EQ(behind.outcome.get().code, StatusCode::kUnavailable);
  Sent next = Lookup(nullptr);
  peer_.Meet();
  ExpectServed(next);  // and nothing that is over
  push.exchange->of.carried.reset();
  behind.exchange->of.carried.reset();
  EXPECT_TRUE(shared_buffer.expired());
}

}  // namespace
}  // namespace slotwise::client
