// Tests the data transport's server, byte by byte, and compares it with gRPC.
#include "server/data/data_server.h"

#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "server/data/data_call.h"
#include "tests/data/data_server_fixture.h"
#include "wire/status_code.h"

namespace slotwise {
namespace {

using std::chrono::milliseconds;
using test::DataClient;
using test::MetClient;
using ::testing::HasSubstr;

std::uint32_t Number(StatusCode code) { return WireCode(code); }

TEST_F(DataServerTest, AnswersAsGrpcDoes) {
  OpenWithAds();
  MetClient client(server_->port());
  const auto pushed = client.Ask(Push(1, WholePush(1)));
  EXPECT_EQ(pushed.head.id(), 1U);
  ASSERT_EQ(pushed.head.code(), 0U) << pushed.head.message();
  EXPECT_EQ(pushed.head.pushes(0).table_step(), 1U);
  EXPECT_TRUE(pushed.body.empty());

  const auto reply = client.Ask(Lookup(2));
  EXPECT_EQ(reply.head.id(), 2U);
  EXPECT_NE(reply.head.lookups(0).lineage(), 0U);
  ExpectSameAsByGrpc(reply);

  // The same step by gRPC is the same step.
  v1::PushReply again;
  ASSERT_TRUE(Ask(embedding_, &Embedding::Push, WholePush(1), &again).ok());
  EXPECT_EQ(again.SerializeAsString(), pushed.head.pushes(0).SerializeAsString());
}

TEST_F(DataServerTest, AnswersCallsOfSeveralMessages) {
  OpenWithAds();
  MetClient client(server_->port());
  v1::DataCall call;
  std::string body;
  call.set_id(7);
  call.set_timeout_ms(kMinuteMs);
  call.set_many(true);
  for (int i = 0; i < 3; ++i) {
    v1::LookupRequest message = SmallLookup();
    MoveArrays(message, call, body);
    *call.add_lookups() = message;
  }
  const auto reply = client.Ask(call, body);
  ASSERT_EQ(reply.head.lookups_size(), 3) << reply.head.message();
  for (int i = 0; i < 3; ++i) ExpectSameAsByGrpc(reply, i);

  call.mutable_lookups(1)->set_table("none");
  const auto refused = client.Ask(call, body);
  EXPECT_EQ(refused.head.code(), Number(StatusCode::kNotFound));
  EXPECT_EQ(refused.head.message(), "lookups[1]: there is no table \"none\"");
  EXPECT_EQ(refused.head.lookups_size(), 0);

  v1::DataCall none;
  none.set_id(8);
  none.set_timeout_ms(kMinuteMs);
  none.set_many(true);
  EXPECT_EQ(client.Ask(none).head.code(), 0U);
}

TEST_F(DataServerTest, RefusesWhatGrpcRefusesInTheSameWords) {
  OpenWithAds();
  MetClient client(server_->port());
  std::vector<v1::LookupRequest> bad(5, SmallLookup());
  bad[0].set_samples(3);
  bad[1].mutable_keys()->pop_back();
  bad[2].set_table("none");
  bad[3].set_weights(std::string("\0\0\x80\x7f", 4));
  bad[4].mutable_offsets()->append("x");
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const grpc::Status expected = Ask(embedding_, &Embedding::Lookup, bad[i]);
    const auto reply = client.Ask(Lookup(i + 1, bad[i]));
    EXPECT_NE(reply.head.code(), 0U);
    EXPECT_EQ(reply.head.code(), static_cast<std::uint32_t>(expected.error_code()));
    EXPECT_EQ(reply.head.message(), expected.error_message());
  }
  v1::PushRequest push = WholePush(1);
  push.mutable_gradients()->replace(4, 4, std::string("\0\0\x80\x7f", 4));
  const auto reply = client.Ask(Push(99, push));
  EXPECT_EQ(reply.head.code(), Number(StatusCode::kInvalidArgument));
  EXPECT_THAT(reply.head.message(), HasSubstr("gradients[1] is inf"));
}

// Of calls whose deadline passes while their arrays come, nothing is looked at: neither what is wrong with
// one, nor a step that could be applied.
TEST_F(DataServerTest, DoesNothingForACallWhoseDeadlineHasPassedAsItComes) {
  OpenWithAds();
  MetClient client(server_->port());
  v1::LookupRequest unknown = SmallLookup();
  unknown.set_table("unknown");
  auto lookup = Lookup(1, unknown);
  auto push = Push(2, WholePush(1));
  for (auto* const sent : {&lookup, &push}) {
    auto& [call, body] = *sent;
    constexpr milliseconds kTimeout(20);
    call.set_timeout_ms(static_cast<std::uint32_t>(kTimeout.count()));
    const std::string frame = test::FrameOf(call.SerializeAsString(), body);
    ASSERT_TRUE(client.SendBytes(frame.data(), frame.size() - 1));
    std::this_thread::sleep_for(5 * kTimeout);
    ASSERT_TRUE(client.SendBytes(&frame.back(), 1));
    const auto reply = client.Receive();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->head.code(), Number(StatusCode::kDeadlineExceeded)) << reply->head.message();
  }
  const auto applied = client.Ask(Push(3, WholePush(1)));
  ASSERT_EQ(applied.head.pushes_size(), 1) << applied.head.message();
  EXPECT_EQ(applied.head.pushes(0).table_step(), 1U);
}

TEST_F(DataServerTest, IsUnavailableUntilItIsOpened) {
  Start();
  MetClient client(server_->port());
  EXPECT_EQ(client.Ask(Lookup(1)).head.code(), Number(StatusCode::kUnavailable));
}

TEST_F(DataServerTest, EndsAConnectionThatIsNoneOfThisProtocol) {
  OpenWithAds();
  const auto [call, body] = Lookup(1);
  std::vector<std::pair<v1::DataCall, std::string>> bad;
  const auto add = [&, good = call, arrays = body](const auto& change) {
    auto& [changed, bytes] = bad.emplace_back(good, arrays);
    change(changed, bytes);
  };
  add([](v1::DataCall&, std::string& bytes) { bytes += "x"; });
  add([](v1::DataCall&, std::string& bytes) { bytes.clear(); });
  add([](v1::DataCall& c, std::string&) { c.mutable_arrays(0)->set_keys(~std::uint64_t{0} - 63); });
  add([](v1::DataCall& c, std::string&) {
    // Together they are as long as the body, modulo 2^64.
    c.mutable_arrays(0)->set_gradients(std::uint64_t{1} << 63);
    c.mutable_arrays(0)->set_weights(std::uint64_t{1} << 63);
  });
  add([](v1::DataCall& c, std::string&) { c.add_arrays(); });
  add([](v1::DataCall& c, std::string&) { c.clear_arrays(); });
  add([](v1::DataCall& c, std::string&) { c.add_pushes(); });
  add([](v1::DataCall& c, std::string&) { *c.add_lookups() = c.lookups(0); });
  add([](v1::DataCall& c, std::string&) { c.set_timeout_ms(0); });
  add([](v1::DataCall& c, std::string&) { c.mutable_lookups(0)->set_keys("12345678"); });
  add([](v1::DataCall& c, std::string& bytes) {
    c.mutable_arrays(0)->set_gradients(4);
    bytes.resize(bytes.size() + kArrayAlign);
  });
  add([](v1::DataCall& c, std::string& bytes) {
    c.set_many(true);
    c.clear_arrays();
    bytes.clear();
    for (int i = 0; i < 65'536; ++i) c.add_lookups();
    for (int i = 0; i < 65'537; ++i) c.add_arrays();
  });
  for (const auto& [changed, bytes] : bad) {
    MetClient client(server_->port());
    ASSERT_TRUE(client.Send(changed, bytes));
    EXPECT_TRUE(client.Ended()) << changed.ShortDebugString().substr(0, 200);
  }
  MetClient client(server_->port());
  ASSERT_TRUE(client.SendFrame("\xff\xff\xff no message"));
  EXPECT_TRUE(client.Ended());
}

TEST_F(DataServerTest, TakesAnIdAgainOnceItsCallIsAnswered) {
  OpenWithAds();
  MetClient client(server_->port());
  v1::LookupRequest lookup;
  lookup.set_table("ads");
  lookup.set_samples(250);
  lookup.set_mode(v1::LOOKUP_MODE_EVAL);
  lookup.set_keys(std::string(500 * sizeof(Key), '\1'));
  const auto [call, body] = Lookup(3, lookup);
  for (int i = 0; i < 2000; ++i) {
    const auto reply = client.Ask(call, body);
    ASSERT_EQ(reply.head.code(), 0U) << reply.head.message();
  }
}

TEST_F(DataServerTest, SaysItsVersionToOneThatItDoesNotSpeak) {
  OpenWithAds();
  DataClient client(server_->port());
  ASSERT_TRUE(client.Greet(kDataVersion + 1));
  EXPECT_EQ(client.Greeted(), kDataVersion);
  EXPECT_TRUE(client.Ended());
}

TEST_F(DataServerTest, EndsConnectionsThatDoNotSayWhatTheyAre) {
  OpenWithAds({.hello_timeout = milliseconds(50)});
  DataClient silent(server_->port());
  EXPECT_TRUE(silent.Ended());
  DataClient slow(server_->port());
  ASSERT_TRUE(slow.SendBytes("SLOT", 4));
  EXPECT_TRUE(slow.Ended());
  DataClient other(server_->port());
  ASSERT_TRUE(other.SendBytes("SLOTWARE\1\0\0\0\0\0\0", 16));
  EXPECT_TRUE(other.Ended());
  ByGrpc();  // which is served all the while
}

TEST_F(DataServerTest, EndsAConnectionThatSendsHalfAFrame) {
  OpenWithAds({.reply_timeout = milliseconds(50)});
  const auto [call, body] = Lookup(1);
  MetClient client(server_->port());
  const std::string frame = test::FrameOf(call.SerializeAsString(), body);
  ASSERT_TRUE(client.SendBytes(frame.data(), frame.size() - body.size()));
  EXPECT_TRUE(client.Ended());
}

TEST_F(DataServerTest, RefusesTwoCallsOfOneName) {
  OpenWithAds();
  MetClient client(server_->port());
  // The first one waits for its step's other parts.
  ASSERT_TRUE(client.Send(Push(5, SmallPush())));
  ASSERT_TRUE(client.Send(Lookup(5)));
  EXPECT_TRUE(client.Ended());
  engine_->RequestStop();
}

TEST_F(DataServerTest, ReadsNoMoreCallsThanMayBeUnderWay) {
  OpenWithAds({.max_calls_per_connection = 2});
  MetClient client(server_->port());
  v1::PushRequest first = SmallPush();
  first.mutable_step()->set_part(0);
  for (const Call& call : {Push(1, first), Push(2, SmallPush()), Lookup(3)}) ASSERT_TRUE(client.Send(call));
  // Both pushes wait for their step's last part, and the lookup stays unread until they are answered.
  v1::PushRequest third = SmallPush();
  third.mutable_step()->set_part(2);
  ASSERT_TRUE(Ask(embedding_, &Embedding::Push, third).ok());
  std::vector<std::uint64_t> answered;
  for (int i = 0; i < 3; ++i) answered.push_back(client.Receive()->head.id());
  EXPECT_EQ(answered.back(), 3U);
}

TEST_F(DataServerTest, DoesNotWorkForACallerWhoseTimeIsOver) {
  const Caller caller("ipv4:1.2.3.4:5", Caller::Clock::now() - milliseconds(1));
  EXPECT_TRUE(caller.gone());
  EXPECT_FALSE(Caller("ipv4:1.2.3.4:5", Caller::Clock::now() + std::chrono::hours(1)).gone());
  EXPECT_FALSE(Caller("ipv4:1.2.3.4:5").gone());
}

TEST_F(DataServerTest, SendsNoRowsToWhomTheyComeTooLate) {
  const Caller late("ipv4:1.2.3.4:5", Caller::Clock::now() - milliseconds(1));
  const Caller waits("ipv4:1.2.3.4:5", Caller::Clock::now() + std::chrono::hours(1));
  const EmbeddingAnswers rows{LookupAnswer{.samples = 1, .width = 2}};
  const EmbeddingAnswers steps{PushAnswer{}};
  EXPECT_EQ(WithoutLateRows(late, rows).status(),
            DeadlineExceeded("the deadline passed before the rows were sent"));
  EXPECT_TRUE(WithoutLateRows(waits, rows).ok());
  EXPECT_TRUE(WithoutLateRows(late, steps).ok()) << "what became of a step is heard of";
  EXPECT_TRUE(WithoutLateRows(late, EmbeddingAnswers{}).ok());
  EXPECT_EQ(WithoutLateRows(late, NotFound("no table")).status(), NotFound("no table"));
}

TEST_F(DataServerTest, CutsOffWhoTakesNoReplies) {
  OpenWithAds({.reply_timeout = milliseconds(200)});
  DataClient client(server_->port());
  const int small = 4096;
  setsockopt(client.socket(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  client.Meet();
  v1::LookupRequest large;
  large.set_table("ads");
  large.set_mode(v1::LOOKUP_MODE_EVAL);
  large.set_samples(250'000);
  large.set_keys(std::string(std::size_t{500'000} * 8, 0));
  for (std::uint64_t id = 1; id <= 4; ++id) {
    const auto [call, body] = Lookup(id, large);
    if (!client.Send(call, body)) break;  // it is cut off already
  }
  EXPECT_TRUE(client.BrokenOff());
  ByGrpc();
}

TEST_F(DataServerTest, StopsWithConnectionsInEveryState) {
  OpenWithAds();
  DataClient silent(server_->port());
  MetClient greeted(server_->port());
  MetClient amid_frame(server_->port());
  ASSERT_TRUE(amid_frame.SendBytes("x", 1));
  MetClient waits(server_->port());
  ASSERT_TRUE(waits.Send(Push(1, SmallPush())));
  engine_->RequestStop();
  server_->Shutdown(milliseconds(100));
  EXPECT_TRUE(silent.Ended());
  EXPECT_TRUE(greeted.Ended());
  EXPECT_TRUE(amid_frame.Ended());
  EXPECT_TRUE(waits.Ended());
}

TEST_F(DataServerTest, StopsWhileConnectionsEndByThemselves) {
  Gate gate;
  for (int i = 0; i < 500; ++i) {
    DataServer server({.threads = 2}, *engine_, gate);
    std::vector<int> clients;
    for (int c = 0; c < 8; ++c) {
      std::array<int, 2> sockets{};
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
      server.Take(sockets[0], [](int other) { close(other); });
      const Preface mine = MakePreface(kDataVersion);
      ASSERT_EQ(write(sockets[1], mine.data(), mine.size()), 16);
      Preface theirs{};
      ASSERT_EQ(recv(sockets[1], theirs.data(), theirs.size(), MSG_WAITALL), 16);
      clients.push_back(sockets[1]);
    }
    for (const int client : clients) close(client);
    server.Stop();  // returns
  }
}

TEST_F(DataServerTest, LetsCallsGoWhoseConnectionHasEnded) {
  OpenWithAds();
  for (int i = 0; i < 20; ++i) {
    MetClient client(server_->port());
    ASSERT_TRUE(client.Send(Lookup(1)));
    v1::PushRequest part = SmallPush();
    part.mutable_step()->set_number(static_cast<std::uint64_t>(i) + 1);
    ASSERT_TRUE(client.Send(Push(2, part)));
  }
  engine_->RequestStop();
  server_->Shutdown(milliseconds(100));  // returns, so nothing waits for them
}

}  // namespace
}  // namespace slotwise
