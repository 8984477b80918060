// Tests one rank's server over real gRPC, on this machine's CPU: the gate, the health service, and abandoned
// calls.
#include "server/rpc/rpc_server.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "tests/rpc/messages.h"
#include "tests/rpc/rpc_server_fixture.h"

namespace slotwise {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(RpcServerTest, AnswersUnavailableUntilItIsOpened) {
  Start();
  const auto expect_starting = [](const grpc::Status& status) {
    ExpectStatus(status, grpc::StatusCode::UNAVAILABLE, "the server is starting: try again");
  };
  expect_starting(Ask(embedding_, &Embedding::Lookup, SmallLookup()));
  expect_starting(Ask(embedding_, &Embedding::Push, SmallPush()));
  expect_starting(Ask(admin_, &Admin::CreateTable, {}));
  expect_starting(Ask(admin_, &Admin::DropTable, {}));
  expect_starting(Ask(admin_, &Admin::ListTables, {}));
  expect_starting(Ask(admin_, &Admin::DescribeTable, {}));
  expect_starting(Ask(admin_, &Admin::Digest, {}));
  expect_starting(Ask(admin_, &Admin::SaveCheckpoint, {}));
  expect_starting(Ask(admin_, &Admin::ListCheckpoints, {}));
  expect_starting(Ask(admin_, &Admin::DescribeCheckpoint, {}));
  expect_starting(Ask(admin_, &Admin::VerifyCheckpoint, {}));
  expect_starting(Ask(rows_, &Rows::Erase, {}));
  grpc::ClientContext exporting;
  expect_starting(rows_->Export(&exporting, {})->Finish());
  v1::ImportReply import;
  grpc::ClientContext importing;
  expect_starting(rows_->Import(&importing, &import)->Finish());
  v1::GetTopologyReply topology;
  expect_starting(GetTopology(topology));

  server_->Open(
      {.version = "1.2.3", .ranks = {{"here:1", "cpu"}, {"there:2", "cuda H200"}}, .rank = Rank{1}});
  ASSERT_TRUE(GetTopology(topology).ok());
  EXPECT_EQ(topology.version(), "1.2.3");
  ASSERT_EQ(topology.ranks_size(), 2);
  EXPECT_EQ(topology.ranks(1).address(), "there:2");
  EXPECT_EQ(topology.ranks(1).device(), "cuda H200");
  EXPECT_EQ(topology.rank(), 1u);
  EXPECT_EQ(topology.max_message_bytes(), std::uint64_t{64} << 20);
  EXPECT_EQ(topology.max_round_bytes(), std::uint64_t{512} << 20);
}

// The health port tells probes that it serves: not before the server is open, and no longer while it ends.
TEST_F(RpcServerTest, SaysWhetherItServes) {
  std::mutex mutex;
  std::vector<bool> said;
  const auto all_said = [&] {
    const std::lock_guard lock(mutex);
    return said;
  };
  RpcOptions options;
  options.on_serving = [&](bool serves) {
    const std::lock_guard lock(mutex);
    said.push_back(serves);
  };
  Start(options);
  EXPECT_EQ(all_said(), std::vector<bool>());
  server_->Open({.version = "1.2.3", .ranks = {{"here:1", "cpu"}}, .rank = Rank{0}});
  EXPECT_EQ(all_said(), std::vector<bool>{true});
  server_->Shutdown(milliseconds(0));
  EXPECT_EQ(all_said(), (std::vector<bool>{true, false}));
}

TEST_F(RpcServerTest, LooksUpThroughAGeneratedStub) {
  OpenWithAds();
  v1::LookupReply reply;
  const grpc::Status status = Ask(embedding_, &Embedding::Lookup, SmallLookup(), &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.samples(), 2u);
  EXPECT_EQ(reply.width(), 6u);
  EXPECT_EQ(reply.values(), std::string(2 * 6 * sizeof(float), '\0'));  // an EVAL lookup of an empty table
}

TEST_F(RpcServerTest, AnswersACallWithoutADeadlineAfterTheDefaultOne) {
  OpenWithAds({.default_deadline = milliseconds(50)});
  // Parts 0 and 2 never come.
  ExpectStatus(Ask(embedding_, &Embedding::Push, SmallPush()), grpc::StatusCode::DEADLINE_EXCEEDED,
               "within 50 ms");
}

TEST_F(RpcServerTest, OutlivesCallersWhoDoNotWait) {
  OpenWithAds();
  for (std::uint64_t number = 0; number < 50; ++number) {
    v1::PushRequest push = SmallPush();
    push.mutable_step()->set_number(number);
    v1::PushReply reply;
    grpc::ClientContext context;
    if (number % 2 == 0) context.set_deadline(std::chrono::system_clock::now() + milliseconds(2));
    std::promise<grpc::Status> answer;
    embedding_->async()->Push(&context, &push, &reply,
                              [&](grpc::Status status) { answer.set_value(status); });
    if (number % 2 == 1) context.TryCancel();
    const auto expected = number % 2 == 0 ? grpc::StatusCode::DEADLINE_EXCEEDED : grpc::StatusCode::CANCELLED;
    EXPECT_EQ(answer.get_future().get().error_code(), expected);
  }
  // The engine still answers those calls when it stops, so the fixture's destructor is the other half of this
  // test.
  EXPECT_TRUE(Ask(embedding_, &Embedding::Lookup, SmallLookup()).ok());
}

TEST_F(RpcServerTest, RefusesARequestAboveItsLimit) {
  OpenWithAds({.max_message_bytes = 1000});
  v1::LookupRequest request = SmallLookup();
  request.set_keys(std::string(2000, 'k'));
  EXPECT_EQ(Ask(embedding_, &Embedding::Lookup, request).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// A few kilobytes of gzip may be gigabytes of keys.
TEST_F(RpcServerTest, RefusesCompressedRequestsWithoutUnpackingThem) {
  OpenWithAds();
  v1::LookupRequest request = SmallLookup();
  request.set_keys(std::string(1 << 20, '\0'));
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    v1::LookupReply reply;
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    ExpectStatus(embedding_->Lookup(&context, request, &reply), grpc::StatusCode::UNIMPLEMENTED,
                 "ompression");
  }
}

TEST_F(RpcServerTest, SaysInOneSentenceWhyItCannotListen) {
  Start();
  const std::string port = std::to_string(server_->port());
  EXPECT_EQ(RpcServer::Start({.port = server_->port()}, *engine_).status(),
            FailedPrecondition("cannot listen at 127.0.0.1:" + port + ": Address already in use"));
  // No machine here has this address.
  EXPECT_EQ(RpcServer::Start({.host = "203.0.113.7", .port = 1}, *engine_).status(),
            FailedPrecondition("cannot listen at 203.0.113.7:1: Cannot assign requested address"));
  EXPECT_TRUE(RpcServer::Start({.host = "no-such-host.invalid", .port = 1}, *engine_)
                  .status()
                  .message()
                  .starts_with("cannot listen at no-such-host.invalid:1: "));
}

TEST_F(RpcServerTest, ShutsDownWhileAStepWaitsForItsParts) {
  OpenWithAds();
  const v1::PushRequest request = SmallPush();
  v1::PushReply reply;
  grpc::ClientContext context;
  std::promise<grpc::Status> answer;
  embedding_->async()->Push(&context, &request, &reply,
                            [&](grpc::Status status) { answer.set_value(status); });
  v1::GetTopologyReply topology;
  ASSERT_TRUE(GetTopology(topology).ok());

  engine_->RequestStop();
  run_.join();
  server_->Shutdown(seconds(5));
  EXPECT_FALSE(answer.get_future().get().ok());
}

}  // namespace
}  // namespace slotwise
